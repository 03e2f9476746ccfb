//! The system calls that a confined process may make, and the names of others.

use std::ffi::{c_int, c_long};

use super::wanted::Confinement;

/// What becomes of a system call.
pub(super) enum Rule {
    Allow,
    /// Allowed if the argument is one of these.
    AllowIf {
        argument: u32,
        values: Vec<u32>,
    },
    /// Allowed if one of these bits of the argument is set.
    AllowWith {
        argument: u32,
        bits: u32,
    },
    /// Allowed if none of these bits of the argument is set.
    AllowWithout {
        argument: u32,
        bits: u32,
    },
    /// Fails as if the user had no right to: the C library and the standard library ask the system things that they can do without.
    Reject,
}

/// What threads of the simulator that have begun, and the C library below them, ask of the system until they end.
const RUN: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_timer_delete,
];

/// What loading a library takes beside it.
const LOAD: &[c_long] = &[
    libc::SYS_faccessat,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_getcwd,
    libc::SYS_lseek,
    libc::SYS_mmap,
    libc::SYS_newfstatat,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_seccomp,
    libc::SYS_statx,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
];

/// The rules, by system call: every other one is denied.
pub(super) fn rules(confinement: &Confinement, loading: bool) -> Vec<(c_long, Rule)> {
    let process = std::process::id();
    let mut rules: Vec<_> = RUN.iter().map(|&call| (call, Rule::Allow)).collect();
    rules.push((libc::SYS_write, Rule::AllowIf { argument: 0, values: confinement.writable.map(|file| file as u32).to_vec() }));
    rules.push((libc::SYS_tgkill, Rule::AllowIf { argument: 0, values: vec![process] }));
    let writing = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u32;
    let open = |argument| if loading { Rule::AllowWithout { argument, bits: writing } } else { Rule::Reject };
    rules.push((libc::SYS_openat, open(2)));
    #[cfg(target_arch = "x86_64")]
    rules.push((libc::SYS_open, open(1)));
    if loading {
        rules.extend(LOAD.iter().map(|&call| (call, Rule::Allow)));
    } else {
        rules.push((libc::SYS_mmap, Rule::AllowWith { argument: 3, bits: libc::MAP_ANONYMOUS as u32 }));
    }
    rules
}

macro_rules! names {
    ($($name:ident = $call:ident),* $(,)?) => {
        /// The name of a system call: of those that do something worth knowing of.
        pub(super) fn name(number: c_int) -> Option<&'static str> {
            $(if c_long::from(number) == libc::$call { return Some(stringify!($name)); })*
            #[cfg(target_arch = "x86_64")]
            match c_long::from(number) {
                libc::SYS_open => return Some("open"),
                libc::SYS_fork => return Some("fork"),
                libc::SYS_vfork => return Some("vfork"),
                libc::SYS_pause => return Some("pause"),
                libc::SYS_poll => return Some("poll"),
                libc::SYS_select => return Some("select"),
                libc::SYS_unlink => return Some("unlink"),
                libc::SYS_rename => return Some("rename"),
                libc::SYS_mkdir => return Some("mkdir"),
                libc::SYS_creat => return Some("creat"),
                libc::SYS_alarm => return Some("alarm"),
                _ => {}
            }
            None
        }
    };
}

names! {
    accept = SYS_accept, bind = SYS_bind, bpf = SYS_bpf, brk = SYS_brk, chdir = SYS_chdir, clock_gettime = SYS_clock_gettime,
    clock_nanosleep = SYS_clock_nanosleep, clone = SYS_clone, clone3 = SYS_clone3, close = SYS_close, connect = SYS_connect, dup = SYS_dup,
    dup3 = SYS_dup3, execve = SYS_execve, execveat = SYS_execveat, exit = SYS_exit, exit_group = SYS_exit_group, fchmodat = SYS_fchmodat,
    fcntl = SYS_fcntl, fstat = SYS_fstat, ftruncate = SYS_ftruncate, futex = SYS_futex, getcwd = SYS_getcwd, getpid = SYS_getpid, getppid = SYS_getppid,
    getrandom = SYS_getrandom, gettid = SYS_gettid, gettimeofday = SYS_gettimeofday, getuid = SYS_getuid, io_uring_setup = SYS_io_uring_setup,
    ioctl = SYS_ioctl, kill = SYS_kill, linkat = SYS_linkat, listen = SYS_listen, lseek = SYS_lseek, madvise = SYS_madvise,
    memfd_create = SYS_memfd_create, mkdirat = SYS_mkdirat, mmap = SYS_mmap, mount = SYS_mount, mprotect = SYS_mprotect, mremap = SYS_mremap,
    munmap = SYS_munmap, nanosleep = SYS_nanosleep, newfstatat = SYS_newfstatat, openat = SYS_openat, openat2 = SYS_openat2, pipe2 = SYS_pipe2,
    ppoll = SYS_ppoll, prctl = SYS_prctl, pread64 = SYS_pread64, process_vm_readv = SYS_process_vm_readv, process_vm_writev = SYS_process_vm_writev,
    pselect6 = SYS_pselect6, ptrace = SYS_ptrace, pwrite64 = SYS_pwrite64, read = SYS_read, readv = SYS_readv, recvfrom = SYS_recvfrom,
    renameat2 = SYS_renameat2, rt_sigaction = SYS_rt_sigaction, rt_sigprocmask = SYS_rt_sigprocmask, rt_sigsuspend = SYS_rt_sigsuspend,
    sched_yield = SYS_sched_yield, seccomp = SYS_seccomp, sendmsg = SYS_sendmsg, sendto = SYS_sendto, setitimer = SYS_setitimer, socket = SYS_socket,
    socketpair = SYS_socketpair, statx = SYS_statx, symlinkat = SYS_symlinkat, tgkill = SYS_tgkill, timer_create = SYS_timer_create,
    timer_settime = SYS_timer_settime, tkill = SYS_tkill, truncate = SYS_truncate, uname = SYS_uname, unlinkat = SYS_unlinkat, unshare = SYS_unshare,
    userfaultfd = SYS_userfaultfd, wait4 = SYS_wait4, write = SYS_write, writev = SYS_writev,
}
