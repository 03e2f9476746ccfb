//! The filter that the system runs before each system call of the process, and what becomes of a process that it catches.

use std::{
    ffi::{c_int, c_long, c_void},
    mem,
    ops::Range,
    ptr,
};

use elinvar_core::{Error, Result};
use libc::sock_filter;

use super::{
    calls::{Rule, rules},
    wanted::{Confinement, WANTED},
};

/// From the system's `linux/audit.h`.
const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
/// The bit by which the numbers of x86's third set of system calls differ.
const X32: u32 = 0x4000_0000;

// Of `struct seccomp_data`, whose 64-bit words are little-endian here.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const CODE_AT: u32 = 8;
const ARGUMENTS_AT: u32 = 16;

pub(super) fn is_supported() -> bool {
    let action: u32 = libc::SECCOMP_RET_TRAP;
    // SAFETY: asks whether the system knows the action that it is pointed to.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) == 0 }
}

/// Denies all threads of the process whatever [`rules`] does not allow; with `code`, every system call that is made from there too.
pub(super) fn apply(confinement: &Confinement, code: Option<Range<u64>>) -> Result<()> {
    let first = code.is_none();
    let mut program = program(&rules(confinement, first), code);
    let rejected = || Error::unsupported(format!("the system rejects a filter of system calls: {}", std::io::Error::last_os_error()));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: zero is a valid value of the handler's description, which is filled in; the program lives until the call is over.
    let applied = unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // Once the filter is on, it stays.
        libc::sigaction(libc::SIGSYS, &action, ptr::null_mut()) == 0
            && (!first || libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
            && libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC, &raw const filter) == 0
    };
    if applied { Ok(()) } else { Err(rejected()) }
}

/// A system call was denied.
extern "C" fn handle(_signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    const CALL_AT: usize = 24;
    // SAFETY: for this signal the system gives the call's number there.
    let call = unsafe { info.cast::<u8>().add(CALL_AT).cast::<c_int>().read() };
    if let Some(confinement) = WANTED.get() {
        (confinement.denied)(call);
    }
    // SAFETY: ends the process.
    unsafe { libc::_exit(128 + libc::SIGSYS) }
}

fn program(rules: &[(c_long, Rule)], code: Option<Range<u64>>) -> Vec<sock_filter> {
    let mut program = vec![
        load(ARCHITECTURE_AT),
        jump(libc::BPF_JEQ, ARCHITECTURE, 1, 0),
        end(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER_AT),
        jump(libc::BPF_JGE, X32, 0, 1),
        end(libc::SECCOMP_RET_KILL_PROCESS),
    ];
    program.extend(code.map(|code| from(&code)).into_iter().flatten());
    program.push(load(NUMBER_AT));
    for (call, rule) in rules {
        let block = block(rule);
        program.push(jump(libc::BPF_JEQ, *call as u32, 0, block.len() as u8));
        program.extend(block);
    }
    program.push(end(libc::SECCOMP_RET_TRAP));
    program
}

/// Denies what is called from these addresses; those of one library, which lie within 4 GiB.
fn from(code: &Range<u64>) -> Vec<sock_filter> {
    let (low, high) = (code.start as u32, code.end as u32);
    let above = |address: u64| (address >> 32) as u32;
    let trap = end(libc::SECCOMP_RET_TRAP);
    if above(code.start) == above(code.end) {
        return vec![
            load(CODE_AT + 4),
            jump(libc::BPF_JEQ, above(code.start), 0, 4),
            load(CODE_AT),
            jump(libc::BPF_JGE, low, 0, 2),
            jump(libc::BPF_JGE, high, 1, 0),
            trap,
        ];
    }
    vec![
        load(CODE_AT + 4),
        jump(libc::BPF_JEQ, above(code.start), 0, 3),
        load(CODE_AT),
        jump(libc::BPF_JGE, low, 0, 1),
        trap,
        load(CODE_AT + 4),
        jump(libc::BPF_JEQ, above(code.end), 0, 3),
        load(CODE_AT),
        jump(libc::BPF_JGE, high, 1, 0),
        trap,
    ]
}

/// What decides once the number is that of the rule.
fn block(rule: &Rule) -> Vec<sock_filter> {
    let (allow, trap) = (end(libc::SECCOMP_RET_ALLOW), end(libc::SECCOMP_RET_TRAP));
    let argument = |index: &u32| load(ARGUMENTS_AT + 8 * index);
    match rule {
        Rule::Allow => vec![allow],
        Rule::AllowIf { argument: index, values } => {
            let mut block = vec![argument(index)];
            block.extend(values.iter().flat_map(|value| [jump(libc::BPF_JEQ, *value, 0, 1), allow]));
            block.push(trap);
            block
        }
        Rule::AllowWith { argument: index, bits } => vec![argument(index), jump(libc::BPF_JSET, *bits, 0, 1), allow, trap],
        Rule::AllowWithout { argument: index, bits } => vec![argument(index), jump(libc::BPF_JSET, *bits, 1, 0), allow, trap],
        Rule::Reject => vec![end(libc::SECCOMP_RET_ERRNO | libc::EACCES as u32)],
    }
}

fn load(offset: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: offset }
}

fn jump(condition: u32, value: u32, then: u8, otherwise: u8) -> sock_filter {
    sock_filter { code: (libc::BPF_JMP | condition | libc::BPF_K) as u16, jt: then, jf: otherwise, k: value }
}

fn end(result: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: result }
}
