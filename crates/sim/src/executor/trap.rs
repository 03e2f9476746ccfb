//! Faults and endless loops in kernels: signals that arrive while a fiber runs end its GPU thread instead of the process.
//!
//! A fault is any SIGSEGV, SIGBUS, SIGFPE or SIGILL with the stack pointer on the running fiber's stack. A timer of the host thread's own
//! processor time sends SIGURG; when the same threadgroup has run for the limit, its thread is ended, but only at an instruction of the kernel,
//! which holds no lock.

use std::{
    cell::{Cell, UnsafeCell},
    ffi::{c_int, c_void},
    mem::MaybeUninit,
    ops::Range,
    ptr,
    sync::Once,
    time::Duration,
};

use corosensei::trap::CoroutineTrapHandler;
use elinvar_core::{Error, Result};

use super::fiber::Fiber;
use crate::confinement;

const SIGNALS: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGURG];
const ALTERNATE_STACK_BYTES: usize = 128 << 10;
const TICK: Duration = Duration::from_millis(20);

/// A signal that ended a GPU thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) signal: c_int,
    pub(super) address: u64,
    pub(super) pc: u64,
    pub(super) frame_pointer: u64,
    /// What lies on top of the stack, for a thread that was interrupted: the return address, if that was in a jump stub, which has no line.
    pub(super) top: u64,
}

impl Fault {
    /// Whether the thread ran too long, rather than faulted.
    pub(super) fn is_timeout(self) -> bool {
        self.signal == libc::SIGURG
    }
}

thread_local! {
    static FIBER: Cell<*const Fiber> = const { Cell::new(ptr::null()) };
    static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
    static CODE: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    static GROUP: Cell<u64> = const { Cell::new(0) };
    /// The group at the last tick, and for how many it has run.
    static TICKS: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
    static LIMIT: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// Signals that arrive with the stack pointer on this fiber's stack belong to it, until [`disarm`].
pub(super) fn arm(fiber: *const Fiber) {
    FIBER.set(fiber);
}

/// Before the last fiber that was armed moves or ends.
pub(super) fn disarm() {
    FIBER.set(ptr::null());
}

/// The fault that ended the fiber which just returned.
pub(super) fn take_fault() -> Option<Fault> {
    FAULT.take()
}

/// Where a thread may be interrupted (the kernel's own code), and how long a threadgroup may run.
pub(super) fn begin_dispatch(code: Range<u64>, limit: Duration) {
    CODE.set((code.start, code.end));
    LIMIT.set(u32::try_from(limit.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX).max(1));
}

/// A threadgroup starts: its time starts too. Zero: none runs.
pub(super) fn begin_group(group: u64) {
    GROUP.set(group);
    confinement::set_running(group);
}

/// Whether the running threadgroup has used up its time.
pub(super) fn expired() -> bool {
    let (group, ticks) = TICKS.get();
    group != 0 && group == GROUP.get() && ticks > LIMIT.get()
}

/// What a host thread needs to run fibers: the signal handlers, a stack for them, a timer.
pub(super) struct Guard {
    stack: *mut c_void,
    timer: libc::timer_t,
}

impl Guard {
    pub(super) fn new() -> Result<Self> {
        static INSTALL: Once = Once::new();
        INSTALL.call_once(install);
        let stack = alternate_stack()?;
        let timer = timer()?;
        Ok(Self { stack, timer })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: both were made for this thread by `new`; the stack is given up before it is unmapped.
        unsafe {
            libc::timer_delete(self.timer);
            let none = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
            libc::sigaltstack(&none, ptr::null_mut());
            libc::munmap(self.stack, ALTERNATE_STACK_BYTES);
        }
    }
}

fn rejected(what: &str) -> Error {
    Error::out_of_memory(format!("the simulator's {what} was rejected: {}", std::io::Error::last_os_error()))
}

fn alternate_stack() -> Result<*mut c_void> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping.
    let stack = unsafe { libc::mmap(ptr::null_mut(), ALTERNATE_STACK_BYTES, protection, flags, -1, 0) };
    if stack == libc::MAP_FAILED {
        return Err(rejected("signal stack"));
    }
    let description = libc::stack_t { ss_sp: stack, ss_flags: 0, ss_size: ALTERNATE_STACK_BYTES };
    // SAFETY: the mapping lives until the guard replaces it.
    match unsafe { libc::sigaltstack(&description, ptr::null_mut()) } {
        0 => Ok(stack),
        _ => Err(rejected("signal stack")),
    }
}

/// Ticks of this thread's processor time, signalled to this thread.
fn timer() -> Result<libc::timer_t> {
    let mut timer = ptr::null_mut();
    // SAFETY: plain data, zero is a valid value of it; the calls read it and write the timer.
    let made = unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGURG;
        event.sigev_notify_thread_id = libc::gettid();
        libc::timer_create(libc::CLOCK_THREAD_CPUTIME_ID, &mut event, &mut timer) == 0
    };
    if !made {
        return Err(rejected("timer"));
    }
    let tick = libc::timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as libc::c_long };
    let interval = libc::itimerspec { it_interval: tick, it_value: tick };
    // SAFETY: a timer of this thread's.
    match unsafe { libc::timer_settime(timer, 0, &interval, ptr::null_mut()) } {
        0 => Ok(timer),
        _ => Err(rejected("timer")),
    }
}

struct Previous(UnsafeCell<[MaybeUninit<libc::sigaction>; SIGNALS.len()]>);
// SAFETY: written once, before the handlers that read it are installed.
unsafe impl Sync for Previous {}
static PREVIOUS: Previous = Previous(UnsafeCell::new([const { MaybeUninit::zeroed() }; SIGNALS.len()]));

fn install() {
    for (index, signal) in SIGNALS.into_iter().enumerate() {
        // SAFETY: called once; the previous action is read before the handler can run.
        unsafe {
            let previous = (*PREVIOUS.0.get())[index].as_mut_ptr();
            libc::sigaction(signal, ptr::null(), previous);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system hands a handler with SA_SIGINFO valid pointers to both.
    let (info_ref, registers) = unsafe { (&*info, Registers(&mut *context.cast::<libc::ucontext_t>())) };
    let mine = if signal == libc::SIGURG { tick(&registers) } else { true };
    // SAFETY: the fiber is where it was when it was armed.
    let fiber = unsafe { FIBER.get().as_ref() }.and_then(Fiber::trap_handler);
    let fiber = fiber.filter(|fiber| mine && fiber.stack_ptr_in_bounds(registers.stack_pointer()));
    match fiber {
        Some(fiber) => {
            let (address, top) = match signal {
                // SAFETY: a thread that was interrupted, rather than overflowed its stack, has a word there.
                libc::SIGURG => (0, unsafe { *(registers.stack_pointer() as *const u64) }),
                // SAFETY: the address field is set for the signals of faults.
                _ => (unsafe { info_ref.si_addr() as u64 }, 0),
            };
            FAULT.set(Some(Fault { signal, address, pc: registers.pc(), frame_pointer: registers.frame_pointer(), top }));
            // SAFETY: the interrupted stack pointer lies on this fiber's stack, whose frames hold nothing to drop and no lock: the code that runs
            // on fibers is the kernel's, the runtime's and the callbacks of `shared`; a timer interrupts the first alone.
            unsafe { registers.redirect(&fiber) };
        }
        None if signal == libc::SIGURG => {}
        None => chain(signal, info, context),
    }
}

/// Whether the running threadgroup is to be stopped here.
fn tick(registers: &Registers) -> bool {
    let (group, (last, ticks)) = (GROUP.get(), TICKS.get());
    let ticks = if group == last { ticks.saturating_add(1) } else { 0 };
    TICKS.set((group, ticks));
    let (low, high) = CODE.get();
    expired() && (low..high).contains(&registers.pc())
}

/// Not ours: what was installed before, or the default.
fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(index) = SIGNALS.iter().position(|known| *known == signal) else { return };
    // SAFETY: filled by `install`; handlers are called as they were registered.
    unsafe {
        let previous = (*PREVIOUS.0.get())[index].assume_init_ref();
        match previous.sa_sigaction {
            libc::SIG_IGN => {}
            libc::SIG_DFL => {
                libc::sigaction(signal, previous, ptr::null_mut());
            }
            handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}

struct Registers<'a>(&'a mut libc::ucontext_t);

#[cfg(target_arch = "x86_64")]
impl Registers<'_> {
    fn register(&self, index: c_int) -> u64 {
        self.0.uc_mcontext.gregs[index as usize] as u64
    }

    fn pc(&self) -> u64 {
        self.register(libc::REG_RIP)
    }

    fn stack_pointer(&self) -> usize {
        self.register(libc::REG_RSP) as usize
    }

    fn frame_pointer(&self) -> u64 {
        self.register(libc::REG_RBP)
    }

    /// # Safety
    /// As [`CoroutineTrapHandler::setup_trap_handler`].
    unsafe fn redirect(self, fiber: &CoroutineTrapHandler<()>) {
        // SAFETY: promised by the caller.
        let to = unsafe { fiber.setup_trap_handler(|| ()) };
        let registers = &mut self.0.uc_mcontext.gregs;
        for (index, value) in
            [(libc::REG_RIP, to.rip), (libc::REG_RSP, to.rsp), (libc::REG_RBP, to.rbp), (libc::REG_RDI, to.rdi), (libc::REG_RSI, to.rsi)]
        {
            registers[index as usize] = value as i64;
        }
    }
}

#[cfg(target_arch = "aarch64")]
impl Registers<'_> {
    fn pc(&self) -> u64 {
        self.0.uc_mcontext.pc
    }

    fn stack_pointer(&self) -> usize {
        self.0.uc_mcontext.sp as usize
    }

    fn frame_pointer(&self) -> u64 {
        self.0.uc_mcontext.regs[29]
    }

    /// # Safety
    /// As [`CoroutineTrapHandler::setup_trap_handler`].
    unsafe fn redirect(self, fiber: &CoroutineTrapHandler<()>) {
        // SAFETY: promised by the caller.
        let to = unsafe { fiber.setup_trap_handler(|| ()) };
        let machine = &mut self.0.uc_mcontext;
        (machine.pc, machine.sp) = (to.pc, to.sp);
        for (index, value) in [(0, to.x0), (1, to.x1), (29, to.x29), (30, to.lr)] {
            machine.regs[index] = value;
        }
    }
}
