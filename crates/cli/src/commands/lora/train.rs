use elinvar::{Error, Result, format_bytes};
use elinvar_llm::{Config, DataOptions, Loss, Tokenizer, Trainer, TrainingFolder, TrainingMemory, train};

use super::{
    curve,
    options::{TrainArgs, longest},
    progress::{Profiled, Report},
    tensorboard::Events,
};
use crate::{model::BaseArgs, output::print_line, profile, world};

pub(crate) fn run(args: &TrainArgs) -> Result<()> {
    let adapter_path = &world::own(&args.adapter_path)?;
    let data_folder = args.data.as_ref().ok_or_else(|| Error::invalid_argument("no data: give --data FOLDER, or 'data' in the file of --config"))?;
    let trace = args.profile.open()?;
    let files = args.base.files()?;
    let config = Config::read(&files)?;
    let tokenizer = Tokenizer::open(&files)?;
    let data = DataOptions { mask_prompt: args.mask_prompt, max_tokens: longest(args.max_seq_length, &config)? };
    let loss = args.loss()?;
    let samples = args.open(&data_folder.join("train.jsonl"), &tokenizer, data)?;
    let validation = Some(data_folder.join("valid.jsonl")).filter(|path| path.exists());
    let validation = validation.map(|path| args.open(&path, &tokenizer, data)).transpose()?;
    let initial = args.initial()?;
    let folder = TrainingFolder::open(adapter_path)?;
    if folder.has_checkpoint() != args.resume {
        let shown = args.adapter_path.display();
        return Err(Error::invalid_argument(match args.resume {
            true => format!("{shown} has no checkpoint to go on from: train without --resume"),
            false => format!("{shown} has a training already: --resume goes on with it, another --adapter-path begins a new one"),
        }));
    }
    let weights = args.base.weights(&files)?;
    let executor = args.base.device.executor_for(weights.bytes())?.replicated();
    let profiler = args.profile.profiler(&executor)?;
    let model = BaseArgs::load(&files, &executor, config, &weights)?;
    let adapter = args.adapter(&model, initial.as_ref())?;
    let options = args.trainer(loss);
    let memory = TrainingMemory::of(&model, &adapter, &options, &samples, args.batch_size)?;
    memory.check(executor.memory())?;
    let mut trainer = Trainer::new(&model, adapter, initial.as_ref(), options)?;
    match args.resume {
        true => folder.resume(&mut trainer)?,
        false => folder.keep_log(0)?,
    }
    let [need, parameters, activations, logits] = [memory.total(), memory.parameters, memory.activations, memory.logits].map(format_bytes);
    print_line(format!("memory beside the model: about {need} (parameters {parameters}, activations {activations}, logits {logits})"));
    let of = if loss == Loss::CrossEntropy { "samples" } else { "pairs" };
    print_line(format!("training {} parameters on {} {of}", trainer.parameters(), samples.len()));
    let mut report = Report::new(args.iters, trainer.steps(), args.steps_per_report, loss != Loss::CrossEntropy);
    let mut profiled = Profiled::new(profiler, trainer.steps() + 1, args.iters)?;
    let mut events = args.tensorboard.then(|| Events::new(adapter_path, trainer.steps())).transpose()?;
    let trained = train(&mut trainer, &folder, (&samples, validation.as_ref()), &args.options(), &mut |event| {
        events.as_mut().map_or(Ok(()), |events| events.listen(event))?;
        report.show(event, executor.pool().statistics().peak_bytes);
        profiled.listen(event)
    });
    report.finish();
    curve::write(&folder)?;
    trained?;
    profile::finish(profiled.into_profiler(), trace.as_deref())?;
    print_line(format!("the adapter is in {}: use it with `elinvar generate --adapter {0}`", args.adapter_path.display()));
    Ok(())
}
