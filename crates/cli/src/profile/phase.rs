//! Parts of a run.

use elinvar::ProfileEvent;

/// A part of the run.
pub(super) struct Phase {
    pub(super) name: String,
    /// What the device did, by start.
    pub(super) events: Vec<ProfileEvent>,
    /// Seconds from its begin to its end on the host.
    pub(super) wall: f64,
    /// Tokens that it took or gave.
    pub(super) tokens: Option<usize>,
    /// Seconds that the same work took without a profile.
    pub(super) unprofiled: Option<f64>,
}

/// The nanoseconds that each event, by start, adds to the time in which the device was busy: events that overlap share a time, which the earlier has.
pub(super) fn own_times(events: &[ProfileEvent]) -> impl Iterator<Item = (&ProfileEvent, u64)> {
    events.iter().scan(0, |busy_until, event| {
        let own = event.end_ns().saturating_sub(event.start_ns.max(*busy_until));
        *busy_until = event.end_ns().max(*busy_until);
        Some((event, own))
    })
}

#[cfg(test)]
pub(super) mod tests {
    use elinvar::Activity;

    use super::*;

    pub(in crate::profile) fn event(activity: Activity, start_ns: u64, duration_ns: u64, bytes: u64) -> ProfileEvent {
        ProfileEvent { activity, start_ns, duration_ns, bytes, list: Some(3) }
    }

    /// A copy inside of which a fill runs, a read that begins before the copy ends, and a write later.
    pub(in crate::profile) fn overlapping() -> Phase {
        let events = vec![
            event(Activity::Copy, 1_000, 10_000, 20_000),
            event(Activity::Fill, 2_000, 3_000, 64),
            event(Activity::Read, 9_000, 4_000, 8),
            event(Activity::Write, 20_000, 1_000, 0),
            event(Activity::Copy, 30_000, 1_000, 2_000),
        ];
        Phase { name: "decode".to_owned(), events, wall: 20e-6, tokens: Some(2), unprofiled: None }
    }

    #[test]
    fn time_that_events_share_counts_once() {
        assert_eq!(own_times(&overlapping().events).map(|(_, own)| own).collect::<Vec<_>>(), [10_000, 0, 2_000, 1_000, 1_000]);
    }
}
