//! What a program means, and how the CPU runs it.
//!
//! A block runs in lockstep: each register is a vector over the block's threads, each instruction a loop over its lanes, and where threads
//! part a mask says who runs. Blocks that share nothing are run together in strips of a thousand lanes or more, so that the cost of an instruction
//! is spread and registers stay in the first cache. What is the same in all lanes is computed once, and lanes that count up (positions and
//! what is added to them) are not even written down: a load at such an index is a slice of the buffer. Blocks run in parallel.

mod active;
mod apply;
mod code;
mod collective;
mod fault;
mod flatten;
mod fuse;
mod line;
mod lower;
mod memory;
mod ops;
mod pieces;
mod place;
mod positions;
mod range;
mod run;
mod slot;
mod straight;
mod strip;

use elinvar_core::{Access, Error};
use rayon::prelude::*;

use crate::{
    program::{Bounds, Constant, LaunchConfig, Site},
    verify::Verified,
};
use code::Code;
use fault::Result;
use place::Place;
use range::Range;
use strip::Strip;

/// Lanes of a strip of several blocks.
const LANES: usize = 1024;
/// The same where a program is a straight line, whose registers take memory for a piece of the strip only.
const MANY_LANES: usize = 16 * LANES;
/// Lanes of a row of blocks from which it has strips of its own.
const LONG_ROW: u64 = 256;
/// Lanes times steps that are worth waking other threads for.
const PARALLEL: u64 = 2 << 20;

/// What a parameter is given.
#[derive(Debug)]
pub enum Argument<'a> {
    /// For a buffer that is read: its bytes.
    Read(&'a [u8]),
    /// For a buffer that is written or updated: its bytes.
    Write(&'a mut [u8]),
    /// For a scalar.
    Scalar(Constant),
}

/// A program prepared for the CPU.
pub struct Interpreter {
    program: Verified,
    code: Code,
}

impl std::fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Interpreter({})", self.program.program().name)
    }
}

impl Interpreter {
    /// Prepares a program.
    pub fn new(program: Verified) -> Self {
        let code = lower::lower(program.program());
        Self { program, code }
    }

    /// The program.
    pub fn program(&self) -> &Verified {
        &self.program
    }

    /// Runs the program, with one argument for each parameter. It uses the rayon pool that it is called in.
    ///
    /// # Errors
    /// A launch that the program does not allow, arguments that do not fit its parameters, loops that take more steps than they may, or an access out
    /// of bounds of a program that traps; buffers then hold what was stored until then.
    pub fn run(&self, launch: &LaunchConfig, arguments: Vec<Argument<'_>>) -> elinvar_core::Result<()> {
        let program = self.program.program();
        self.program.check_launch(launch)?;
        if arguments.len() != program.parameters.len() {
            let (given, taken) = (arguments.len(), program.parameters.len());
            return Err(Error::invalid_argument(format!("program {}: {given} arguments, it takes {taken}", program.name)));
        }
        let (mut memory, mut scalars) = (Vec::new(), Vec::new());
        for (parameter, argument) in program.parameters.iter().zip(arguments) {
            let reject = |what: &str| Error::invalid_argument(format!("program {}, '{}': {what}", program.name, parameter.name));
            let size = parameter.dtype.size();
            let is_whole = |bytes: &[u8]| bytes.len().is_multiple_of(size) && bytes.as_ptr().align_offset(size) == 0;
            memory.push(match (parameter.access, argument) {
                (Some(Access::Read), Argument::Read(bytes)) if is_whole(bytes) => Range::constant(bytes, parameter.dtype),
                (Some(Access::Write | Access::ReadWrite), Argument::Write(bytes)) if is_whole(bytes) => Range::updated(bytes, parameter.dtype),
                (None, Argument::Scalar(value)) if value.dtype == parameter.dtype && value.is_valid() => {
                    scalars.push(value.bits);
                    Range::none()
                }
                (None, _) => return Err(reject(&format!("a scalar of {} is expected", parameter.dtype))),
                (Some(access), _) => {
                    return Err(reject(&format!("an aligned buffer of whole {} for access {access:?} is expected", parameter.dtype)));
                }
            });
            if parameter.access.is_some() {
                scalars.push(0);
            }
        }
        let scalars: Vec<_> = self.code.scalars.iter().map(|&(slot, parameter)| (slot, scalars[parameter as usize])).collect();
        self.launch(launch, &memory, &scalars).map_err(|fault| {
            let (function, index) = self.code.sites[fault.step];
            let function = program.functions.get(function as usize).unwrap_or(&program.kernel);
            Error::invalid_launch(format!("{}: {}", Site::of(function, index as usize), fault.what))
        })
    }

    fn launch(&self, launch: &LaunchConfig, memory: &[Range<'_>], scalars: &[(u32, u64)]) -> Result<()> {
        let program = self.program.program();
        let threads = launch.threads() as usize;
        let blocks: u64 = launch.grid.iter().map(|&n| u64::from(n)).product();
        let (all, pool) = (blocks * threads as u64, rayon::current_num_threads());
        let parallel = pool > 1 && all * self.code.steps.len() as u64 > PARALLEL;
        let lanes = match self.code.straight {
            false => LANES,
            true if parallel => (all / (4 * pool as u64)).clamp(LANES as u64, MANY_LANES as u64) as usize,
            true => MANY_LANES,
        };
        let together = if self.code.merges { (lanes / threads).clamp(1, usize::try_from(blocks).unwrap_or(lanes)) } else { 1 };
        // Lanes of a strip have the same row where rows are long.
        let columns = u64::from(launch.grid[0]);
        let row = if columns * threads as u64 >= LONG_ROW { columns } else { blocks };
        // The last block, where threads may be beyond the end, does not hold up others.
        let in_row = (row - 1).div_ceil(together as u64) + 1;
        let strips = in_row * (blocks / row);
        let begin = || {
            let shared = program.shared.iter().map(|s| Range::shared(s.elements(launch), s.dtype));
            let memory = memory.iter().map(Range::again).chain(shared).collect();
            Strip::new(&self.code, memory, Place::new(*launch), scalars, together * threads, program.bounds == Bounds::Trap)
        };
        let run = |strip: &mut Strip<'_>, index: u64| {
            let first = (index % in_row * together as u64).min(row - 1);
            let count = (row - 1 - first).clamp(1, together as u64) as usize;
            strip.run(index / in_row * row + first, count, self.code.registers, self.program.limits().steps)
        };
        if !parallel {
            let mut strip = begin();
            return (0..strips).try_for_each(|index| run(&mut strip, index));
        }
        (0..strips).into_par_iter().try_for_each_init(begin, |strip, index| run(strip, index))
    }
}
