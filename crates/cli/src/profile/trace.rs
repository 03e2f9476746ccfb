//! The timeline of a profile, in the trace event format of Chrome, which Perfetto reads too.

use elinvar::DeviceProperties;
use serde_json::{Value, json};

use super::phase::Phase;

const PROCESS: u32 = 1;
/// The thread of the run's parts. What the device does has those after it: events of one thread do not overlap.
const PHASES: usize = 0;

pub(super) fn trace(device: &DeviceProperties, phases: &[Phase]) -> Value {
    let origin = phases.iter().filter_map(|phase| phase.events.first()).map(|event| event.start_ns).min().unwrap_or(0);
    let complete = |name: &str, category: &str, thread: usize, [start, end]: [u64; 2], args: Value| {
        let microseconds = |ns: u64| ns as f64 / 1e3;
        let (ts, dur) = (microseconds(start.saturating_sub(origin)), microseconds(end.saturating_sub(start)));
        json!({ "ph": "X", "pid": PROCESS, "tid": thread, "ts": ts, "dur": dur, "name": name, "cat": category, "args": args })
    };
    let (mut events, mut busy_until) = (Vec::new(), Vec::new());
    for phase in phases {
        let ends = phase.events.iter().map(elinvar::ProfileEvent::end_ns).max();
        if let (Some(first), Some(end)) = (phase.events.first(), ends) {
            let args = json!({ "host_milliseconds": phase.wall * 1e3, "tokens": phase.tokens });
            events.push(complete(&phase.name, "phase", PHASES, [first.start_ns, end], args));
        }
        for event in &phase.events {
            let lane = busy_until.iter().position(|until| *until <= event.start_ns).unwrap_or(busy_until.len());
            if lane == busy_until.len() {
                busy_until.push(0);
            }
            busy_until[lane] = event.end_ns();
            let args = json!({ "bytes_at_most": event.bytes, "list": event.list });
            events.push(complete(&event.activity.to_string(), "device", PHASES + 1 + lane, [event.start_ns, event.end_ns()], args));
        }
    }
    let named = |what: &str, thread: usize, name: &str| json!({ "ph": "M", "pid": PROCESS, "tid": thread, "name": what, "args": { "name": name } });
    let lane = |lane: usize| named("thread_name", PHASES + 1 + lane, if lane == 0 { "device" } else { "device, overlapping" });
    let names = [named("process_name", PHASES, &device.name), named("thread_name", PHASES, "phases")];
    let all: Vec<Value> = names.into_iter().chain((0..busy_until.len()).map(lane)).chain(events).collect();
    json!({ "displayTimeUnit": "ns", "otherData": { "device": device.name, "times": device.kind.clock() }, "traceEvents": all })
}

#[cfg(test)]
mod tests {
    use elinvar::{BackendType, Executor};

    use super::{super::phase::tests::overlapping, *};

    #[test]
    fn events_are_complete_and_those_of_a_thread_do_not_overlap() {
        let executor = Executor::new_with_backend(BackendType::Null).unwrap();
        let trace = trace(executor.properties(), &[overlapping()]);
        let events: Vec<_> = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X").collect();
        let shown =
            events.iter().map(|e| (e["name"].as_str().unwrap(), e["tid"].as_u64().unwrap(), e["ts"].as_f64().unwrap(), e["dur"].as_f64().unwrap()));
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                ("decode", 0, 0.0, 30.0),
                ("(copy)", 1, 0.0, 10.0),
                ("(fill)", 2, 1.0, 3.0),
                ("(read to host)", 2, 8.0, 4.0),
                ("(write from host)", 1, 19.0, 1.0),
                ("(copy)", 1, 29.0, 1.0)
            ]
        );
        assert!(events.iter().all(|event| event["pid"] == 1));
    }
}
