//! What each device of a group runs for a list.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Weak},
};

use elinvar_core::{Binding, Buffer, Command, CommandList, DType, Device, Dispatch, Error, ListBuilder, Pipeline, Result};
use elinvar_kernels::{
    Launch, Plan,
    collective::{Collective, CollectiveParams, Delivering, Delivery, Push, Pushing, ROW_SLOTS, SLOT_ELEMENTS},
    encode,
};

use crate::{Group, Prepared, memory::of_rank};

/// The lists of the devices, kept as long as the lists that they were made of.
#[derive(Default)]
pub(crate) struct Lists(HashMap<u64, Made>);

/// What was made of a list.
struct Made {
    of: Weak<CommandList>,
    run: Arc<Run>,
}

/// The lists of each device.
pub(crate) type OfDevices = Arc<[Arc<CommandList>]>;

/// What is done for a list: where processes exchange parts, each device's list ends, and another one goes on.
pub(crate) struct Run {
    pub(crate) exchanges: Vec<(OfDevices, Exchange)>,
    pub(crate) last: OfDevices,
    /// Whether it exchanges anything with other processes.
    pub(crate) meets: bool,
}

/// The parts of this process's ranks that other processes get, and where the parts of all go, one after the other.
pub(crate) struct Exchange {
    /// Of each rank.
    pub(crate) parts: Vec<Binding>,
    /// On the devices of these ranks.
    pub(crate) wholes: Vec<(usize, Binding)>,
}

impl Lists {
    /// What is done for a list.
    pub(crate) fn of(&mut self, group: &Group, commands: &Arc<CommandList>) -> Result<Arc<Run>> {
        if let Some(made) = self.0.get(&commands.id()) {
            return Ok(made.run.clone());
        }
        self.0.retain(|_, made| made.of.strong_count() > 0);
        let run = Arc::new(run(group, commands)?);
        // A list waits for those of the other devices while it runs: none may wait for anything before it starts.
        let places = group.places();
        if places.len() > 1 {
            places.iter().zip(&*run.last).try_for_each(|((device, _), list)| device.prepare_list(list))?;
        }
        self.0.insert(commands.id(), Made { of: Arc::downgrade(commands), run: run.clone() });
        Ok(run)
    }
}

/// The lists that are being made.
struct Making<'a> {
    group: &'a Group,
    places: Vec<(&'a Device, Vec<usize>)>,
    /// Of each device.
    lists: Vec<ListBuilder>,
    exchanges: Vec<(OfDevices, Exchange)>,
    /// Of each device the memory in which the largest exchange arrives; none where nothing does.
    landings: Vec<Buffer>,
    meets: bool,
}

/// What is done for a list.
fn run(group: &Group, commands: &CommandList) -> Result<Run> {
    let places = group.places();
    let lists = places.iter().map(|_| ListBuilder::new()).collect();
    let mut making = Making { group, lists, places, exchanges: Vec::new(), landings: Vec::new(), meets: false };
    let mut largest = 0;
    for command in commands.commands() {
        if let Command::Dispatch(dispatch) = command
            && let (Some(Prepared::Collective(Collective::AllGather)), Some(_)) = (dispatch.pipeline.state(), group.world())
        {
            let Operands { params, dtype, .. } = Operands::of(dispatch)?;
            largest = largest.max(if params.rows > 1 { params.part_bytes(dtype) * group.ranks() } else { 0 });
        }
    }
    if largest > 0 {
        making.landings = making.places.iter().map(|(device, _)| device.allocate_dedicated(largest)).collect::<Result<_>>()?;
    }
    let (commands, deliveries) = (commands.commands(), Deliveries::of(group, commands.commands())?);
    let mut index = 0;
    while let Some(command) = commands.get(index) {
        let mut taken = 1;
        if let Some(delivers) = deliveries.launches.get(&index) {
            making.deliver(command, delivers)?;
        } else if making.push(command, commands.get(index + 1))? {
            taken = 2;
        } else if !deliveries.gathers.contains(&index) {
            making.add(command)?;
        }
        index += taken;
    }
    Ok(Run { last: making.finish(), exchanges: making.exchanges, meets: making.meets })
}

impl Making<'_> {
    /// Ends the lists, and begins others.
    fn finish(&mut self) -> OfDevices {
        self.lists.iter_mut().map(|list| std::mem::take(list).finish()).collect()
    }

    /// Adds a command, for each rank.
    fn add(&mut self, command: &Command) -> Result<()> {
        if let Command::Dispatch(dispatch) = command
            && let Some(Prepared::Collective(collective)) = dispatch.pipeline.state()
        {
            let operands = Operands::of(dispatch)?;
            return match (collective, self.group.world()) {
                (Collective::OwnPart, _) => self.own_part(&operands),
                (Collective::AllGather, Some(_)) => self.gather_processes(&operands),
                (Collective::AllGather, None) => self.gather(&operands),
            };
        }
        for (place, ((device, ranks), list)) in self.places.iter().zip(&mut self.lists).enumerate() {
            for &rank in ranks {
                match command {
                    Command::Dispatch(dispatch) => {
                        let Some(Prepared::Kernel(pipelines)) = dispatch.pipeline.state() else {
                            return Err(Error::internal("a group was given a kernel that it did not prepare"));
                        };
                        list.dispatch(launch_of(dispatch, &pipelines[place], rank)?, device.properties())?;
                    }
                    Command::Copy(copy) => list.copy(of_rank(&copy.source, rank)?, of_rank(&copy.destination, rank)?)?,
                    Command::Fill(fill) => list.fill(of_rank(&fill.destination, rank)?, fill.value)?,
                }
            }
        }
        Ok(())
    }

    /// Adds a launch that delivers its result, or takes a row that is delivered.
    fn deliver(&mut self, command: &Command, delivers: &Delivers) -> Result<()> {
        let Command::Dispatch(launch) = command else { return Err(Error::internal("a command delivers that is no launch")) };
        for ((device, own), list) in self.places.iter().zip(&mut self.lists) {
            let pipeline = device.pipeline(&delivers.by.kernel)?;
            for &rank in own {
                let mut launch = launch_of(launch, &pipeline, rank)?;
                delivers.of_rank(self.group.0.deliveries[rank]).give(&mut launch);
                list.dispatch(launch, device.properties())?;
            }
        }
        Ok(())
    }

    /// Adds a launch that pushes its results in place of a launch and what gathers its results. Whether it could.
    fn push(&mut self, command: &Command, next: Option<&Command>) -> Result<bool> {
        let (Command::Dispatch(launch), Some(Command::Dispatch(gathering)), false) = (command, next, self.group.0.inboxes.is_empty()) else {
            return Ok(false);
        };
        let Some(Prepared::Collective(Collective::AllGather)) = gathering.pipeline.state() else { return Ok(false) };
        let Some(pushing) = Pushing::of(launch.pipeline.source(), &launch.params) else { return Ok(false) };
        let Operands { params, from, to, .. } = Operands::of(gathering)?;
        let is_gathered = |result: &Binding| result.overlaps(from) && (result.offset(), result.bytes()) == (from.offset(), from.bytes());
        // It writes what is gathered while it reads what it is given.
        let is_apart = !launch.bindings.iter().flatten().any(|binding| binding.overlaps(to));
        let is_aligned = to.offset().is_multiple_of(16);
        if pushing.width != params.width || !pushing.result(launch).is_some_and(is_gathered) || !is_apart || !is_aligned {
            return Ok(false);
        }
        let ranks = self.group.ranks();
        for ((device, own), list) in self.places.iter().zip(&mut self.lists) {
            for &rank in own {
                let push = Push { width: params.width, rank: rank as u32, ranks: ranks as u32 };
                let mut launch = launch_of(launch, &device.pipeline(&pushing.kernel)?, rank)?;
                push.give(&mut launch, &self.group.inboxes(rank)?, &wholes(device, to, rank, ranks)?);
                list.dispatch(launch, device.properties())?;
            }
        }
        Ok(true)
    }

    fn own_part(&mut self, &Operands { params, dtype, from, to }: &Operands<'_>) -> Result<()> {
        let (count, first) = (self.group.ranks(), self.group.first_rank());
        for ((device, ranks), list) in self.places.iter().zip(&mut self.lists) {
            for &rank in ranks {
                let launch = params.out_of_place(dtype, count, first + rank)?;
                launched(launch, vec![Some(of_rank(from, rank)?)], of_rank(to, rank)?, device, list)?;
            }
        }
        Ok(())
    }

    /// Gathers parts of ranks that are all in this process.
    fn gather(&mut self, &Operands { params, dtype, from, to }: &Operands<'_>) -> Result<()> {
        let count = self.group.ranks();
        for ((device, ranks), list) in self.places.iter().zip(&mut self.lists) {
            if ranks.len() == count {
                for (&source, &target) in ranks.iter().flat_map(|source| ranks.iter().map(move |target| (source, target))) {
                    let launch = params.into_place(dtype, count, source)?;
                    launched(launch, vec![Some(of_rank(from, source)?)], of_rank(to, target)?, device, list)?;
                }
                continue;
            }
            for &rank in ranks {
                let (part, inboxes, wholes) = (of_rank(from, rank)?, self.group.inboxes(rank)?, wholes(device, to, rank, count)?);
                let from = [part].into_iter().chain(inboxes).chain(wholes).map(Some).collect();
                launched(params.among_peers(dtype, count, rank)?, from, of_rank(to, rank)?, device, list)?;
            }
        }
        Ok(())
    }

    /// Gathers parts of ranks that are in several processes. Where devices do not exchange by themselves, the lists end here. What comes lies one part after the
    /// other; those that follow bring it into place.
    fn gather_processes(&mut self, &Operands { params, dtype, from, to }: &Operands<'_>) -> Result<()> {
        self.meets = true;
        let (count, bytes) = (self.group.ranks(), params.part_bytes(dtype));
        let whole = |place: usize, rank: usize| match params.rows {
            1 => of_rank(to, rank),
            _ => self.landings[place].bind(0, count * bytes),
        };
        if self.group.0.joined.is_some() {
            let whole = whole(0, 0)?;
            launched(CollectiveParams::among_processes(), vec![Some(of_rank(from, 0)?)], whole, self.places[0].0, &mut self.lists[0])?;
        } else {
            let own = 0..self.group.devices().len();
            let parts = own.clone().map(|rank| of_rank(from, rank)).collect::<Result<_>>()?;
            let wholes = match params.rows {
                1 => own.map(|rank| Ok((rank, whole(0, rank)?))).collect::<Result<_>>()?,
                _ => self.places.iter().enumerate().map(|(place, (_, ranks))| Ok((ranks[0], whole(place, 0)?))).collect::<Result<_>>()?,
            };
            let ended = self.finish();
            self.exchanges.push((ended, Exchange { parts, wholes }));
        }
        if params.rows == 1 {
            return Ok(());
        }
        for (((device, ranks), list), landing) in self.places.iter().zip(&mut self.lists).zip(&self.landings) {
            for (source, &target) in (0..count).flat_map(|source| ranks.iter().map(move |target| (source, target))) {
                let launch = params.into_place(dtype, count, source)?;
                launched(launch, vec![Some(landing.bind(source * bytes, bytes)?)], of_rank(to, target)?, device, list)?;
            }
        }
        Ok(())
    }
}

/// A launch as a rank has it, of this kernel.
fn launch_of(launch: &Dispatch, pipeline: &Pipeline, rank: usize) -> Result<Dispatch> {
    let bindings = launch.bindings.iter().map(|binding| binding.as_ref().map(|binding| of_rank(binding, rank)).transpose());
    Ok(Dispatch { pipeline: pipeline.clone(), bindings: bindings.collect::<Result<_>>()?, ..launch.clone() })
}

/// What is delivered in a list, by the places of commands.
#[derive(Default)]
struct Deliveries {
    launches: HashMap<usize, Delivers>,
    /// What would gather the rows that are delivered.
    gathers: HashSet<usize>,
}

/// What a launch delivers, and what it takes.
struct Delivers {
    by: Delivering,
    /// The number of the row in the list, and the elements of a rank's part.
    to: Option<(usize, usize)>,
    /// The number of the row, and the elements of the one before.
    from: Option<(usize, usize)>,
}

impl Delivers {
    fn by(kernel: Delivering) -> Self {
        Self { by: kernel, to: None, from: None }
    }

    fn of_rank(&self, own: Delivery) -> Delivery {
        let slot = |number: usize| (number % ROW_SLOTS) as u32;
        let mut delivery = own;
        if let Some((number, width)) = self.to {
            (delivery.to, delivery.width) = (slot(number), width as u32);
        }
        if let Some((number, before)) = self.from {
            (delivery.from, delivery.clear) = (slot(number), before as u32);
        }
        delivery
    }
}

impl Deliveries {
    /// Rows of which the launch before makes a rank's part and the launch after is to have the whole, as many as are whole turns of the slots. What gathers the
    /// next row reports a rank of which nothing came.
    fn of(group: &Group, commands: &[Command]) -> Result<Self> {
        let (mut rows, mut is_last_gathered) = (Vec::new(), false);
        for (index, command) in commands.iter().enumerate() {
            let Command::Dispatch(gathering) = command else { continue };
            if let (Some(Prepared::Collective(Collective::AllGather)), false) = (gathering.pipeline.state(), group.0.deliveries.is_empty()) {
                let row = delivered(group, commands, index)?;
                is_last_gathered = row.is_none();
                rows.extend(row);
            }
        }
        let most = if is_last_gathered { rows.len() } else { rows.len().saturating_sub(1) };
        rows.truncate(most / ROW_SLOTS * ROW_SLOTS);
        let mut deliveries = Self::default();
        // The row before the first is of another list.
        let mut before = SLOT_ELEMENTS;
        for (number, Row { index, elements, maker, taker }) in rows.into_iter().enumerate() {
            deliveries.launches.entry(index - 1).or_insert_with(|| Delivers::by(maker)).to = Some((number, elements / group.ranks()));
            deliveries.launches.entry(index + 1).or_insert_with(|| Delivers::by(taker)).from = Some((number, before));
            deliveries.gathers.insert(index);
            before = elements;
        }
        Ok(deliveries)
    }
}

/// A row that is delivered in place of being gathered.
struct Row {
    /// What would have gathered it.
    index: usize,
    elements: usize,
    /// What makes a rank's part.
    maker: Delivering,
    /// What has the whole.
    taker: Delivering,
}

/// The row that is gathered at `index`, if it can be delivered.
fn delivered(group: &Group, commands: &[Command], index: usize) -> Result<Option<Row>> {
    let around = (index.checked_sub(1).and_then(|before| commands.get(before)), commands.get(index), commands.get(index + 1));
    let (Some(Command::Dispatch(maker)), Some(Command::Dispatch(gathering)), Some(Command::Dispatch(taker))) = around else { return Ok(None) };
    let Operands { params, dtype, from, to } = Operands::of(gathering)?;
    let (width, elements) = (params.width as usize, params.width as usize * group.ranks());
    if params.rows != 1 || dtype.size() != DType::F32.size() || !width.is_multiple_of(8) || elements > SLOT_ELEMENTS {
        return Ok(None);
    }
    let of = |launch: &Dispatch| Delivering::of(launch.pipeline.source());
    Ok(match (of(maker).filter(|by| by.delivers(maker, from)), of(taker).filter(|by| by.takes(taker, to))) {
        (Some(maker), Some(taker)) => Some(Row { index, elements, maker, taker }),
        (_, _) => None,
    })
}

/// What is gathered on all ranks, as one of them reaches it.
fn wholes(device: &Device, to: &Binding, rank: usize, ranks: usize) -> Result<Vec<Binding>> {
    let whole = |other| match of_rank(to, other)? {
        own if other == rank => Ok(own),
        whole => device.adopt_peer(whole.buffer())?.bind(whole.offset(), whole.bytes()),
    };
    (0..ranks).map(whole).collect()
}

/// What a collective is given.
struct Operands<'a> {
    params: CollectiveParams,
    dtype: DType,
    from: &'a Binding,
    to: &'a Binding,
}

impl<'a> Operands<'a> {
    fn of(dispatch: &'a Dispatch) -> Result<Self> {
        let params = *bytemuck::try_from_bytes(&dispatch.params).map_err(|_| Error::internal("a collective has other parameters"))?;
        match (&dispatch.bindings[..], &dispatch.pipeline.source().parameters[..]) {
            ([Some(from), Some(to)], [parameter, _]) => Ok(Self { params, dtype: parameter.dtype, from, to }),
            _ => Err(Error::internal("a collective has other buffers")),
        }
    }
}

/// Adds a launch of a collective.
pub(crate) fn launched(launch: Launch, from: Vec<Option<Binding>>, to: Binding, device: &Device, list: &mut ListBuilder) -> Result<()> {
    encode(&Plan::from(launch), &from, &[to], device, list, |_| Err(Error::internal("a collective has temporaries")))
}
