//! A stack on which GPU threads run, one after another, until one parks.

use std::num::NonZeroUsize;

use corosensei::{
    Coroutine, CoroutineResult, Yielder,
    stack::{DefaultStack, Stack},
    trap::CoroutineTrapHandler,
};
use elinvar_core::{Error, Result};

use super::shared::Shared;
use crate::abi::MAX_FRAMES;

const STACK_BYTES: usize = 256 << 10;
/// The page below a stack that catches its overflow.
pub(super) const GUARD_BYTES: u64 = 4096;
/// Stacks start at different offsets within their pages: with equal ones, all their hot lines would compete for the same cache sets.
const COLOURS: usize = 32;
const COLOUR_BYTES: usize = 64 * 5;

struct ColouredStack {
    inner: DefaultStack,
    offset: usize,
}

// SAFETY: the inner stack with its guard page; the base is lowered by a multiple of the stack alignment, far less than the stack's size.
unsafe impl Stack for ColouredStack {
    fn base(&self) -> NonZeroUsize {
        NonZeroUsize::new(self.inner.base().get() - self.offset).unwrap_or(self.inner.base())
    }

    fn limit(&self) -> NonZeroUsize {
        self.inner.limit()
    }
}

type Body = Coroutine<(), (), (), ColouredStack>;

/// The stack and what runs on it.
pub(super) struct Fiber {
    body: Option<Body>,
    low: u64,
    high: u64,
}

impl Fiber {
    /// `shared` must outlive the fiber, at the same address.
    pub(super) fn new(number: usize, shared: *const Shared) -> Result<Self> {
        let inner = DefaultStack::new(STACK_BYTES)
            .map_err(|cause| Error::out_of_memory(format!("the stack of a simulated thread ({STACK_BYTES} bytes) was rejected: {cause}")))?;
        let stack = ColouredStack { inner, offset: number % COLOURS * COLOUR_BYTES };
        let (low, high) = (stack.limit().get() as u64, stack.base().get() as u64);
        Ok(Self { body: Some(start(stack, shared)), low, high })
    }

    pub(super) fn bounds(&self) -> (u64, u64) {
        (self.low, self.high)
    }

    pub(super) fn trap_handler(&self) -> Option<CoroutineTrapHandler<()>> {
        self.body.as_ref().map(Coroutine::trap_handler)
    }

    /// Runs until the fiber suspends; false if a trap ended it.
    pub(super) fn resume(&mut self) -> bool {
        self.body.as_mut().is_some_and(|body| matches!(body.resume(()), CoroutineResult::Yield(())))
    }

    /// Return addresses of the calls that led to a frame of this stack, innermost first; the stack must not have run since.
    pub(super) fn callers(&self, mut frame: u64) -> Vec<u64> {
        let mut callers = Vec::new();
        while frame.is_multiple_of(8) && (self.low + GUARD_BYTES..self.high - 16).contains(&frame) && callers.len() < MAX_FRAMES {
            // SAFETY: two words within the mapped part of the stack.
            let [next, caller] = unsafe { *(frame as *const [u64; 2]) };
            callers.push(caller);
            if next <= frame {
                break;
            }
            frame = next;
        }
        callers
    }

    /// Forgets what is on the stack and makes the fiber new.
    pub(super) fn reset(&mut self, shared: *const Shared) {
        if let Some(body) = self.body.take() {
            self.body = Some(start(abandon(body), shared));
        }
    }
}

impl Drop for Fiber {
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            abandon(body);
        }
    }
}

fn start(stack: ColouredStack, shared: *const Shared) -> Body {
    Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
        // SAFETY: the executor that resumes this fiber owns `shared`, boxed.
        unsafe { &*shared }.run_threads(yielder)
    })
}

fn abandon(mut body: Body) -> ColouredStack {
    // SAFETY: a kernel's frames, and `run_threads` below them, hold nothing that must be dropped.
    unsafe { body.force_reset() };
    body.into_stack()
}
