//! A profile: what was submitted, and the GPU's times of it.

use std::{collections::HashMap, sync::Arc};

use elinvar_core::{Activity, Command, CommandList, Error, ProfileEvent, Result};
use elinvar_msl::cuda::Threadgroups;

use crate::{
    cupti::{Direction, Record, What},
    driver::Context,
    host_copy::HostCopy,
    kernel::{Function, Kernel},
};

/// A kernel that the GPU is to run.
#[derive(Clone, Debug)]
struct Launch {
    /// Its name for the driver; a library's product has one or several kernels of its own.
    symbol: Option<Arc<str>>,
    activity: Activity,
    bytes: u64,
    list: Option<u64>,
}

/// Launches in the order of the stream, since a profile began.
#[derive(Default)]
pub(crate) struct Profile {
    submitted: Vec<Arc<[Launch]>>,
    known: HashMap<u64, Arc<[Launch]>>,
}

impl Profile {
    /// A list was submitted.
    pub(crate) fn list(&mut self, context: &Arc<Context>, list: &CommandList) -> Result<()> {
        let launches = match self.known.get(&list.id()) {
            Some(known) => known.clone(),
            None => {
                let launches: Arc<[Launch]> = list.commands().iter().filter_map(|c| launch(context, list, c).transpose()).collect::<Result<_>>()?;
                self.known.insert(list.id(), launches.clone());
                launches
            }
        };
        self.submitted.push(launches);
        Ok(())
    }

    /// So many bytes were requested.
    pub(crate) fn read(&mut self, bytes: usize) {
        if HostCopy::takes(bytes) {
            let copy = Launch { symbol: Some(Arc::from(HostCopy::SYMBOL)), activity: Activity::Read, bytes: 2 * bytes as u64, list: None };
            self.submitted.push(Arc::new([copy]));
        }
    }

    /// The records, with what they are of.
    ///
    /// Copies and fills say themselves what they are. Kernels of a stream begin in its order, so that each record is that of the next launch: where its
    /// name says otherwise, nothing is guessed.
    ///
    /// # Errors
    /// Records and launches differ.
    pub(crate) fn events(&self, mut records: Vec<Record>) -> Result<Vec<ProfileEvent>> {
        records.sort_by_key(|record| (record.start_ns, record.asked));
        let (kernels, transfers): (Vec<_>, Vec<_>) = records.iter().partition(|record| matches!(record.what, What::Kernel(_)));
        let launches: Vec<&Launch> = self.submitted.iter().flat_map(|launches| launches.iter()).collect();
        let mut events = matched(&launches, &kernels)?;
        events.extend(transfers.into_iter().filter_map(|record| {
            let (activity, bytes) = match record.what {
                What::Kernel(_) => return None,
                What::Copy(Direction::FromHost, bytes) => (Activity::Write, bytes),
                What::Copy(Direction::ToHost, bytes) => (Activity::Read, bytes),
                What::Copy(Direction::Within, bytes) => (Activity::Copy, 2 * bytes),
                What::Fill(bytes) => (Activity::Fill, bytes),
            };
            Some(event(record, activity, bytes, None))
        }));
        if let Some(event) = events.iter().find(|event| event.start_ns == 0) {
            return Err(Error::device_lost(format!("CUPTI has no time for {}", event.activity)));
        }
        events.sort_by_key(|event| event.start_ns);
        Ok(events)
    }
}

/// What a command has the GPU launch.
fn launch(context: &Arc<Context>, list: &CommandList, command: &Command) -> Result<Option<Launch>> {
    let Command::Dispatch(dispatch) = command else { return Ok(None) };
    let symbol = match dispatch.pipeline.state() {
        Some(Kernel::Function(forms)) => {
            let is_uniform = dispatch.grid.is_uniform(dispatch.threadgroup);
            let pending = forms.of(if is_uniform { Threadgroups::Uniform } else { Threadgroups::Nonuniform });
            Some(pending.wait(|code| Function::load(context, code))?.symbol.clone())
        }
        Some(Kernel::Product | Kernel::Gather) => None,
        None => return Err(Error::invalid_launch("the kernel was prepared by another device")),
    };
    Ok(Some(Launch { symbol, activity: command.activity(), bytes: command.bytes(), list: Some(list.id()) }))
}

fn event(record: &Record, activity: Activity, bytes: u64, list: Option<u64>) -> ProfileEvent {
    ProfileEvent { activity, start_ns: record.start_ns, duration_ns: record.end_ns.saturating_sub(record.start_ns), bytes, list }
}

fn name(record: &Record) -> &str {
    if let What::Kernel(name) = &record.what { name } else { "" }
}

/// Whether it is the second kernel of a library's product: the one that adds up the parts of a split sum.
fn is_continued(record: &Record) -> bool {
    name(record).contains("splitKreduce")
}

/// The records of kernels, both in order, as the launches' events.
///
/// Products of the vendor's library that follow each other are distinguished if they have a kernel each, beside those that add up parts. If they have more,
/// and all are of one kind, the records are of that kind and the first of them have the bytes.
fn matched(launches: &[&Launch], records: &[&Record]) -> Result<Vec<ProfileEvent>> {
    let defect = |what: String| Err(Error::internal(format!("the profile is not that of the work: {what}: please report this")));
    let (mut launches, mut records, mut events) = (launches, records, Vec::with_capacity(records.len()));
    while let [first, ..] = launches {
        let products = launches.iter().take_while(|launch| launch.symbol.is_none()).count();
        let (taken, count) = match &first.symbol {
            Some(symbol) => match records.first() {
                Some(record) if name(record) == &**symbol => (1, 1),
                Some(record) => return defect(format!("the GPU ran {} where {symbol} was launched", name(record))),
                None => return defect(format!("CUPTI has no record of {} of {} launches", launches.len(), events.len() + launches.len())),
            },
            None => {
                let next = launches.get(products).and_then(|launch| launch.symbol.as_deref());
                (products, records.iter().take_while(|record| Some(name(record)) != next).count())
            }
        };
        let (these, later) = launches.split_at(taken);
        let kind = first.activity.to_string();
        let begun = records[..count].iter().filter(|record| !is_continued(record)).count();
        if begun != taken && (count < taken || these.iter().any(|launch| launch.activity.to_string() != kind)) {
            return defect(format!("{count} kernels for {taken} products from {kind}"));
        }
        let (mut upcoming, mut launch) = (these.iter(), *first);
        for record in &records[..count] {
            let next = if begun == taken && is_continued(record) { None } else { upcoming.next() };
            launch = next.copied().unwrap_or(launch);
            events.push(event(record, launch.activity.clone(), next.map_or(0, |next| next.bytes), launch.list));
        }
        (launches, records) = (later, &records[count..]);
    }
    match records.first() {
        Some(record) => defect(format!("the GPU ran {}, which was not launched", name(record))),
        None => Ok(events),
    }
}

#[cfg(test)]
mod tests {
    use elinvar_core::{DType, KernelKey, KernelSource};

    use super::*;

    fn launch(symbol: &str, bytes: u64) -> Launch {
        let (symbol, is_product) = symbol.strip_prefix('*').map_or((symbol, false), |product| (product, true));
        let key = KernelKey::new(symbol.to_owned(), &[] as &[DType]);
        let source = KernelSource { key, parameters: vec![], params_bytes: 0, host: None, metal: None, native: None };
        Launch { symbol: (!is_product).then(|| Arc::from(symbol)), activity: Activity::Kernel(Arc::new(source)), bytes, list: Some(7) }
    }

    fn record(name: &str, start_ns: u64) -> Record {
        Record { what: What::Kernel(Arc::from(name)), device: 0, start_ns, end_ns: start_ns + 5, asked: (0, 0) }
    }

    fn profile(launches: &[(&str, u64)], records: Vec<Record>) -> Result<Vec<(String, u64, u64)>> {
        let launches: Vec<Launch> = launches.iter().map(|(symbol, bytes)| launch(symbol, *bytes)).collect();
        let profile = Profile { submitted: vec![launches.into()], known: HashMap::new() };
        let events = profile.events(records)?;
        Ok(events.iter().map(|event| (event.activity.to_string(), event.start_ns, event.bytes)).collect())
    }

    fn outcome(launches: &[(&str, u64)], names: &[&str]) -> String {
        let records = names.iter().zip(1..).map(|(name, start)| record(name, 10 * start)).collect();
        match profile(launches, records) {
            Ok(events) => events.iter().map(|(name, _, bytes)| format!("{name}:{bytes} ")).collect(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn records_are_those_of_the_launches_in_order() {
        let mut records = vec![record("b", 30), record("a", 20)];
        let copy = |direction, start_ns| Record { what: What::Copy(direction, 8), ..record("", start_ns) };
        records.extend([copy(Direction::FromHost, 10), copy(Direction::Within, 40), copy(Direction::ToHost, 60)]);
        records.push(Record { what: What::Fill(8), ..record("", 50) });
        let events = profile(&[("a", 1), ("b", 2)], records).unwrap();
        let names = ["(write from host)", "a", "b", "(copy)", "(fill)", "(read to host)"].map(str::to_owned);
        assert_eq!(
            events,
            names.into_iter().zip([(10, 8), (20, 1), (30, 2), (40, 16), (50, 8), (60, 8)]).map(|(n, (s, b))| (n, s, b)).collect::<Vec<_>>()
        );
        assert_eq!(outcome(&[("a", 1), ("b", 2), ("a", 3)], &["a", "b", "a"]), "a:1 b:2 a:3 ");
    }

    #[test]
    fn what_does_not_match_is_no_profile() {
        assert!(outcome(&[("a", 1)], &["b"]).contains("the GPU ran b where a was launched"));
        assert!(outcome(&[("a", 1), ("b", 1)], &["a"]).contains("no record of 1 of 2 launches"));
        assert!(outcome(&[("a", 1)], &["a", "c"]).contains("the GPU ran c, which was not launched"));
        assert!(profile(&[("a", 1)], vec![record("a", 0)]).unwrap_err().to_string().contains("no time for a"));
    }

    #[test]
    fn kernels_of_other_names_are_a_library_s_products() {
        assert_eq!(outcome(&[("*p", 4), ("a", 1)], &["gemm", "a"]), "p:4 a:1 ");
        assert_eq!(outcome(&[("*p", 4), ("*q", 5), ("a", 1)], &["gemm", "gemm", "a"]), "p:4 q:5 a:1 ");
        assert_eq!(outcome(&[("*p", 4), ("*p", 5), ("a", 1)], &["gemm", "sum", "gemm", "a"]), "p:4 p:5 p:0 a:1 ");
        assert_eq!(outcome(&[("a", 1), ("*p", 4)], &["a", "gemm", "sum"]), "a:1 p:4 p:0 ");
        assert_eq!(outcome(&[("*p", 4), ("*q", 5)], &["gemm", "splitKreduce_kernel", "gemm"]), "p:4 p:0 q:5 ");
        assert_eq!(outcome(&[("*p", 4), ("*q", 5), ("a", 1)], &["gemm", "gemm", "splitKreduce_kernel", "a"]), "p:4 q:5 q:0 a:1 ");
        assert!(outcome(&[("*p", 4), ("*q", 5)], &["gemm", "sum", "gemm"]).contains("3 kernels for 2 products from p"));
        assert!(outcome(&[("*p", 4), ("a", 1)], &["a"]).contains("0 kernels for 1 products from p"));
    }
}
