//! What each device of a group runs for a list.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use elinvar_core::{Binding, Command, CommandList, Device, Dispatch, Error, ListBuilder, Result};
use elinvar_kernels::{
    Plan,
    collective::{Collective, CollectiveParams},
    encode,
};

use crate::{Group, Prepared, memory::of_rank};

/// The lists of the devices, kept as long as the lists that they were made of.
#[derive(Default)]
pub(crate) struct Lists(HashMap<u64, Made>);

/// What was made of a list.
struct Made {
    of: Weak<CommandList>,
    lists: Arc<[Arc<CommandList>]>,
}

impl Lists {
    /// The list of each device.
    pub(crate) fn of(&mut self, group: &Group, commands: &Arc<CommandList>) -> Result<Arc<[Arc<CommandList>]>> {
        if let Some(made) = self.0.get(&commands.id()) {
            return Ok(made.lists.clone());
        }
        self.0.retain(|_, made| made.of.strong_count() > 0);
        let places = group.places();
        let lists: Arc<[_]> = (0..places.len()).map(|place| list(group, place, &places[place], commands)).collect::<Result<_>>()?;
        // A list waits for those of the other devices while it runs: none may wait for anything before it starts.
        if places.len() > 1 {
            places.iter().zip(&*lists).try_for_each(|((device, _), list)| device.prepare_list(list))?;
        }
        self.0.insert(commands.id(), Made { of: Arc::downgrade(commands), lists: lists.clone() });
        Ok(lists)
    }
}

/// The list of one device: each command for each of its ranks.
fn list(group: &Group, place: usize, (device, ranks): &(&Device, Vec<usize>), commands: &CommandList) -> Result<Arc<CommandList>> {
    let mut list = ListBuilder::new();
    for command in commands.commands() {
        match command {
            Command::Dispatch(dispatch) => match dispatch.pipeline.state() {
                Some(Prepared::Kernel(pipelines)) => {
                    for &rank in ranks {
                        let bindings = dispatch.bindings.iter().map(|binding| binding.as_ref().map(|binding| of_rank(binding, rank)).transpose());
                        let bindings = bindings.collect::<Result<_>>()?;
                        list.dispatch(Dispatch { pipeline: pipelines[place].clone(), bindings, ..dispatch.clone() }, device.properties())?;
                    }
                }
                Some(Prepared::Collective(collective)) => exchange(group, device, ranks, *collective, dispatch, &mut list)?,
                None => return Err(Error::internal("a group was given a kernel that it did not prepare")),
            },
            Command::Copy(copy) => {
                ranks.iter().try_for_each(|&rank| list.copy(of_rank(&copy.source, rank)?, of_rank(&copy.destination, rank)?))?;
            }
            Command::Fill(fill) => ranks.iter().try_for_each(|&rank| list.fill(of_rank(&fill.destination, rank)?, fill.value))?,
        }
    }
    Ok(list.finish())
}

/// What the ranks of a device do for a collective.
fn exchange(group: &Group, device: &Device, ranks: &[usize], collective: Collective, dispatch: &Dispatch, list: &mut ListBuilder) -> Result<()> {
    let params: CollectiveParams = *bytemuck::try_from_bytes(&dispatch.params).map_err(|_| Error::internal("a collective has other parameters"))?;
    let ([Some(from), Some(to)], [parameter, _]) = (&dispatch.bindings[..], &dispatch.pipeline.source().parameters[..]) else {
        return Err(Error::internal("a collective has other buffers"));
    };
    let (dtype, count) = (parameter.dtype, group.ranks());
    let mut run = |launch, from: Vec<Option<Binding>>, to: Binding| {
        encode(&Plan::from(launch), &from, &[to], device, list, |_| Err(Error::internal("a collective has temporaries")))
    };
    match collective {
        Collective::OwnPart => {
            for &rank in ranks {
                run(params.out_of_place(dtype, count, rank)?, vec![Some(of_rank(from, rank)?)], of_rank(to, rank)?)?;
            }
        }
        Collective::AllGather if ranks.len() == count => {
            for (&source, &target) in ranks.iter().flat_map(|source| ranks.iter().map(move |target| (source, target))) {
                run(params.into_place(dtype, count, source)?, vec![Some(of_rank(from, source)?)], of_rank(to, target)?)?;
            }
        }
        Collective::AllGather => {
            for &rank in ranks {
                let inboxes = group.0.inboxes[rank].iter().map(|inbox| inbox.bind(0, inbox.bytes()));
                let wholes = (0..count).map(|other| match of_rank(to, other)? {
                    own if other == rank => Ok(own),
                    whole => device.adopt_peer(whole.buffer())?.bind(whole.offset(), whole.bytes()),
                });
                let from = [of_rank(from, rank)].into_iter().chain(inboxes).chain(wholes).map(|binding| binding.map(Some)).collect::<Result<_>>()?;
                run(params.among_peers(dtype, count, rank)?, from, of_rank(to, rank)?)?;
            }
        }
    }
    Ok(())
}
