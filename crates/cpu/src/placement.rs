//! Keeps the pool's threads off the core that the device's thread is on.
//!
//! A virtual machine's kernel takes a core that sleeps for one that its host has taken away, and wakes a pool thread on the busy core of the
//! thread that wakes it. There it waits until the next balancing, some milliseconds later: a dispatch is over by then.

/// The pool's threads besides the device's own, and the core they are kept off.
pub(crate) struct Placement {
    #[cfg(target_os = "linux")]
    linux: Option<linux::Placement>,
}

impl Placement {
    /// For the pool that the calling thread belongs to.
    pub(crate) fn of_current_pool() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            linux: linux::Placement::of_current_pool(),
        }
    }

    /// Call before work is split: cheap unless the calling thread has moved to another core.
    pub(crate) fn follow(&mut self) {
        #[cfg(target_os = "linux")]
        if let Some(placement) = &mut self.linux {
            placement.follow();
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use libc::{CPU_CLR, CPU_COUNT, cpu_set_t, pid_t, sched_getaffinity, sched_getcpu, sched_setaffinity};

    pub(super) struct Placement {
        helpers: Vec<pid_t>,
        allowed: cpu_set_t,
        avoided: Option<usize>,
    }

    impl Placement {
        /// Nothing where threads have to share cores anyway.
        pub(super) fn of_current_pool() -> Option<Self> {
            // SAFETY: a set of no cores is all zeros.
            let mut allowed: cpu_set_t = unsafe { std::mem::zeroed() };
            // SAFETY: writes the calling thread's cores to a set of the size given.
            let known = unsafe { sched_getaffinity(0, size_of::<cpu_set_t>(), &mut allowed) } == 0;
            let threads = rayon::current_num_threads();
            // SAFETY: counts the bits of the set.
            let cores = unsafe { CPU_COUNT(&allowed) };
            if !known || threads < 2 || threads > cores as usize {
                return None;
            }
            // SAFETY: it only gives a number.
            let mut helpers = rayon::broadcast(|context| (context.index(), unsafe { libc::gettid() }));
            helpers.retain(|(index, _)| Some(*index) != rayon::current_thread_index());
            Some(Self { helpers: helpers.into_iter().map(|(_, id)| id).collect(), allowed, avoided: None })
        }

        pub(super) fn follow(&mut self) {
            // SAFETY: it only gives a number.
            let here = usize::try_from(unsafe { sched_getcpu() }).ok();
            if here == self.avoided {
                return;
            }
            self.avoided = here;
            let mut cores = self.allowed;
            if let Some(here) = here.filter(|&core| core < 8 * size_of::<cpu_set_t>()) {
                // SAFETY: the core's bit is inside the set.
                unsafe { CPU_CLR(here, &mut cores) };
            }
            for &helper in &self.helpers {
                // A rejection leaves the thread where it may be now, which is only slower.
                // SAFETY: reads a set of the size given; the threads live as long as the pool.
                let _ = unsafe { sched_setaffinity(helper, size_of::<cpu_set_t>(), &cores) };
            }
        }
    }
}
