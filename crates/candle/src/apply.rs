//! An operator of Elinvar's as a custom operator of Candle's: its result at once, its gradients when Candle's backward pass asks for them.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    ptr,
    sync::{Arc, Mutex, PoisonError},
};

use candle_core::{
    CpuStorage, CudaStorage, CustomOp1, CustomOp2, CustomOp3, DType, Device, Layout as CandleLayout, Result, Shape, Storage, Tensor, bail,
    op::BackpropOp,
};
use elinvar::{Error, Executor, Operator, Turns, kernels::cross_entropy::CrossEntropy};

use crate::{
    cuda,
    lend::{Lender, changed, dtype_of, results, unreached},
};

/// The most tensors that gradients flow to from one of Candle's custom operators.
const MOST_ARGUMENTS: usize = 3;

/// A tensor that an operator takes, as Elinvar is to read it.
#[derive(Clone)]
pub(crate) struct Input {
    pub(crate) tensor: Tensor,
    /// Whether its bytes are truth values.
    pub(crate) is_bool: bool,
}

impl From<&Tensor> for Input {
    fn from(tensor: &Tensor) -> Self {
        Self { tensor: tensor.clone(), is_bool: false }
    }
}

/// Has an executor of the device's do something: the turns' own on the CPU, and this thread's on a GPU.
fn on<R>(turns: &Turns, device: &Device, run: impl FnOnce(&Executor) -> elinvar::Result<R>) -> elinvar::Result<R> {
    match device {
        Device::Cpu => turns.take(run),
        Device::Cuda(device) => run(&cuda::executor(device)?),
        Device::Metal(_) => Err(unreached()),
    }
}

/// An operator with what it was applied to.
struct Call {
    turns: Turns,
    operator: Arc<dyn Operator>,
    inputs: Vec<Option<Input>>,
    /// Of each tensor that Candle knows as an argument, the inputs that lie in it.
    arguments: Vec<Vec<usize>>,
    /// Until Candle has taken it.
    result: Mutex<Option<(Storage, Shape)>>,
}

/// Applies an operator of one result to tensors of one device that is reached.
///
/// # Errors
/// What the operator rejects.
pub(crate) fn apply(turns: &Turns, operator: Arc<dyn Operator>, mut inputs: Vec<Option<Input>>) -> Result<Tensor> {
    let (arguments, tensors) = arguments(&mut inputs)?;
    let Some(first) = inputs.iter().flatten().next().map(|input| input.tensor.clone()) else { bail!("{}: no input", operator.name()) };
    let result = forward(turns, &operator, &inputs, first.device())?;
    let call = Call { turns: turns.clone(), operator, inputs, arguments, result: Mutex::new(Some(result)) };
    match &tensors[..] {
        [] => first.apply_op1_no_bwd(&call),
        [a] => a.apply_op1(call),
        [a, b] => a.apply_op2(b, call),
        [a, b, c] => a.apply_op3(b, c, call),
        _ => Err(internal("more arguments than Candle takes")),
    }
}

/// Of the inputs that gradients flow to, those of each argument, and the arguments. Where they are more than Candle takes, the smallest are joined, and lie in
/// what that gives from then on: Candle takes its gradient apart. The first stays, for its type is the result's.
fn arguments(inputs: &mut [Option<Input>]) -> Result<(Vec<Vec<usize>>, Vec<Tensor>)> {
    let tensor = |index: usize| inputs[index].as_ref().map(|input| input.tensor.clone());
    let mut tracked: Vec<_> = (0..inputs.len()).filter_map(|index| Some((index, tensor(index)?))).filter(|(_, tensor)| tensor.track_op()).collect();
    if tracked.len() <= MOST_ARGUMENTS {
        return Ok(tracked.into_iter().map(|(index, tensor)| (vec![index], tensor)).unzip());
    }
    tracked.sort_by_key(|(index, tensor)| (*index > 0, Reverse(tensor.elem_count())));
    let joined = tracked.split_off(MOST_ARGUMENTS - 1);
    let types: Vec<_> = joined.iter().map(|(_, tensor)| tensor.dtype()).collect();
    let dtype = match types[0] {
        dtype if types.iter().all(|other| *other == dtype) => dtype,
        // No element is rounded.
        _ if types.iter().all(|dtype| matches!(dtype, DType::F32 | DType::F16 | DType::BF16)) => DType::F32,
        _ => bail!("inputs that are trained have types {types:?}: cast them to f32, f16 or bf16 first"),
    };
    let flat = joined.iter().map(|(_, tensor)| tensor.to_dtype(dtype)?.flatten_all()).collect::<Result<Vec<_>>>()?;
    let whole = Tensor::cat(&flat, 0)?;
    let mut start = 0;
    for (index, tensor) in &joined {
        let part = whole.narrow(0, start, tensor.elem_count())?.reshape(tensor.shape())?;
        inputs[*index] = Some(Input::from(&part.detach()));
        start += tensor.elem_count();
    }
    let (mut indices, mut tensors): (Vec<_>, Vec<_>) = tracked.into_iter().map(|(index, tensor)| (vec![index], tensor)).unzip();
    indices.push(joined.into_iter().map(|(index, _)| index).collect());
    tensors.push(whole);
    Ok((indices, tensors))
}

fn forward(turns: &Turns, operator: &Arc<dyn Operator>, inputs: &[Option<Input>], device: &Device) -> Result<(Storage, Shape)> {
    let tensors: Vec<_> = inputs.iter().map(|input| input.as_ref().map(|input| &input.tensor)).collect();
    let run = |executor: &Executor, storages: &[Option<&Storage>]| {
        let mut result;
        let shape = {
            let loan = Lender::new(executor);
            let taken = lent(&loan, inputs, storages)?;
            let taken: Vec<_> = taken.iter().map(Option::as_ref).collect();
            let infos: Vec<_> = taken.iter().map(|tensor| tensor.map(elinvar::Tensor::info)).collect();
            let [info] = operator.infer(&infos)?[..] else { return Err(Error::internal(format!("{} has not exactly one result", operator.name()))) };
            result = results(info.dtype, info.elements(), device)?;
            let output = loan.write(info.dtype, info.shape(), &mut result)?;
            executor.apply_into(operator.clone(), &taken, &[&output])?;
            output.settle(operator.as_ref().downcast_ref::<CrossEntropy>().is_some())?;
            Shape::from(info.shape().to_vec())
        };
        changed(&mut result)?;
        Ok((result, shape))
    };
    with_storages(&tensors, |storages| on(turns, device, |executor| run(executor, storages)))
}

/// The inputs, as the executor reads them.
fn lent<'a>(loan: &Lender<'a>, inputs: &[Option<Input>], storages: &[Option<&'a Storage>]) -> elinvar::Result<Vec<Option<elinvar::Tensor>>> {
    let one = |(input, storage): (&Option<Input>, &Option<&'a Storage>)| match (input, storage) {
        (Some(input), Some(storage)) => {
            let dtype = if input.is_bool { elinvar::DType::Bool } else { dtype_of(input.tensor.dtype())? };
            loan.read(dtype, input.tensor.layout(), storage).map(Some)
        }
        _ => Ok(None),
    };
    inputs.iter().zip(storages).map(one).collect()
}

/// Calls `see` with the storages of these tensors, each locked once and in the order of their addresses, as Candle's own operators in place lock them.
fn with_storages<R>(tensors: &[Option<&Tensor>], see: impl FnOnce(&[Option<&Storage>]) -> elinvar::Result<R>) -> Result<R> {
    let address = |tensor: &Tensor| ptr::from_ref::<Storage>(&tensor.storage_and_layout().0).addr();
    let addresses: Vec<_> = tensors.iter().map(|tensor| tensor.map(address)).collect();
    let distinct: BTreeMap<_, _> = addresses.iter().copied().zip(tensors).filter_map(|(address, tensor)| address.zip(*tensor)).collect();
    let guards: BTreeMap<_, _> = distinct.into_iter().map(|(address, tensor)| (address, tensor.storage_and_layout().0)).collect();
    let storages: Vec<_> = addresses.iter().map(|address| address.and_then(|address| guards.get(&address)).map(|guard| &**guard)).collect();
    see(&storages).map_err(candle_core::Error::wrap)
}

impl Call {
    fn take(&self) -> Result<(Storage, Shape)> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(|| internal("a result is taken twice"))
    }

    fn on_cpu(&self) -> Result<(CpuStorage, Shape)> {
        match self.take()? {
            (Storage::Cpu(storage), shape) => Ok((storage, shape)),
            (Storage::Cuda(_) | Storage::Metal(_), _) => Err(internal("the result is on a GPU")),
        }
    }

    fn on_cuda(&self) -> Result<(CudaStorage, Shape)> {
        match self.take()? {
            (Storage::Cuda(storage), shape) => Ok((storage, shape)),
            (Storage::Cpu(_) | Storage::Metal(_), _) => Err(internal("the result is not on a GPU of NVIDIA's")),
        }
    }

    /// The gradients of the arguments.
    fn gradients<const N: usize>(&self, result: &Tensor, upstream: &Tensor) -> Result<[Option<Tensor>; N]> {
        let wanted: Vec<_> = (0..self.inputs.len()).map(|index| self.arguments.iter().any(|argument| argument.contains(&index))).collect();
        let mut operands = self.inputs.clone();
        operands.extend([Some(Input::from(result)), Some(Input::from(upstream))]);
        let tensors: Vec<_> = operands.iter().map(|input| input.as_ref().map(|input| &input.tensor)).collect();
        let of_wanted = || self.inputs.iter().zip(&wanted).filter(|(_, wanted)| **wanted).filter_map(|(input, _)| input.as_ref());
        let device = result.device();
        let run = |executor: &Executor, storages: &[Option<&Storage>]| {
            let mut found = of_wanted()
                .map(|input| results(dtype_of(input.tensor.dtype())?, input.tensor.elem_count(), device))
                .collect::<elinvar::Result<Vec<_>>>()?;
            {
                let loan = Lender::new(executor);
                let taken = lent(&loan, &operands, storages)?;
                let [inputs @ .., Some(result), Some(upstream)] = &taken[..] else { return Err(Error::internal("a call lost its result")) };
                let inputs: Vec<_> = inputs.iter().map(Option::as_ref).collect();
                let into = of_wanted()
                    .zip(&mut found)
                    .map(|(input, storage)| loan.write(dtype_of(input.tensor.dtype())?, &elinvar::Shape::new(input.tensor.dims())?, storage));
                let into = into.collect::<elinvar::Result<Vec<_>>>()?;
                let refs: Vec<_> = into.iter().collect();
                executor.gradient(&*self.operator, &inputs, &[result], &[Some(upstream)], &wanted, &refs)?;
                into.iter().try_for_each(|gradient| gradient.settle(false))?;
            }
            found.iter_mut().try_for_each(changed)?;
            Ok(found)
        };
        let found = with_storages(&tensors, |storages| on(&self.turns, device, |executor| run(executor, storages)))?;
        let found = of_wanted().zip(found).map(|(input, storage)| Tensor::from_storage(storage, input.tensor.shape(), BackpropOp::none(), false));
        let mut of_input: BTreeMap<_, _> = wanted.iter().enumerate().filter(|(_, wanted)| **wanted).map(|(index, _)| index).zip(found).collect();
        let mut arguments = self.arguments.iter().map(|argument| match &argument[..] {
            [index] => Ok(of_input.remove(index)),
            joined => {
                let parts = joined.iter().filter_map(|index| of_input.remove(index)).map(|part| part.flatten_all()).collect::<Result<Vec<_>>>()?;
                Tensor::cat(&parts, 0).map(Some)
            }
        });
        let mut gradients = [const { None }; N];
        for (gradient, found) in gradients.iter_mut().zip(&mut arguments) {
            *gradient = found?;
        }
        Ok(gradients)
    }
}

fn internal(what: &str) -> candle_core::Error {
    candle_core::Error::wrap(Error::internal(what))
}

impl CustomOp1 for Call {
    fn name(&self) -> &'static str {
        self.operator.name()
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &CandleLayout) -> Result<(CpuStorage, Shape)> {
        self.on_cpu()
    }

    fn cuda_fwd(&self, _: &CudaStorage, _: &CandleLayout) -> Result<(CudaStorage, Shape)> {
        self.on_cuda()
    }

    fn bwd(&self, _: &Tensor, result: &Tensor, upstream: &Tensor) -> Result<Option<Tensor>> {
        let [a] = self.gradients(result, upstream)?;
        Ok(a)
    }
}

impl CustomOp2 for Call {
    fn name(&self) -> &'static str {
        self.operator.name()
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &CandleLayout, _: &CpuStorage, _: &CandleLayout) -> Result<(CpuStorage, Shape)> {
        self.on_cpu()
    }

    fn cuda_fwd(&self, _: &CudaStorage, _: &CandleLayout, _: &CudaStorage, _: &CandleLayout) -> Result<(CudaStorage, Shape)> {
        self.on_cuda()
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, result: &Tensor, upstream: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let [a, b] = self.gradients(result, upstream)?;
        Ok((a, b))
    }
}

type Three = (Option<Tensor>, Option<Tensor>, Option<Tensor>);

impl CustomOp3 for Call {
    fn name(&self) -> &'static str {
        self.operator.name()
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &CandleLayout,
        _: &CpuStorage,
        _: &CandleLayout,
        _: &CpuStorage,
        _: &CandleLayout,
    ) -> Result<(CpuStorage, Shape)> {
        self.on_cpu()
    }

    fn cuda_fwd(
        &self,
        _: &CudaStorage,
        _: &CandleLayout,
        _: &CudaStorage,
        _: &CandleLayout,
        _: &CudaStorage,
        _: &CandleLayout,
    ) -> Result<(CudaStorage, Shape)> {
        self.on_cuda()
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, _: &Tensor, result: &Tensor, upstream: &Tensor) -> Result<Three> {
        let [a, b, c] = self.gradients(result, upstream)?;
        Ok((a, b, c))
    }
}
