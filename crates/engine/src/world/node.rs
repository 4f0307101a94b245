//! What the members of one host find out together, because each of them knows only its own share.

use super::{EarlyEnd, Exchange, Topology, gather_to_all};
use crate::host;
use crate::stop::Stop;

/// The sum of a value over the members of this member's node.
pub fn sum_on_node(world: &dyn Exchange, own: u64, stop: &Stop) -> Result<u64, EarlyEnd> {
    let all = gather_to_all(world, &own.to_le_bytes(), stop)?;
    let of = |member: u64| all.get(member as usize)?.as_slice().try_into().ok();
    let values = world.topology().members_on(world.node()).filter_map(of);
    Ok(values.map(u64::from_le_bytes).sum())
}

/// CPU time per wall-clock time that the members of this member's node may use together. A launcher may give each of
/// them cores of its own.
pub(crate) fn cores_of_node(world: &dyn Exchange, stop: &Stop) -> Result<f64, EarlyEnd> {
    if !shares_hosts(world.topology()) {
        return Ok(host::core_share());
    }
    let all = gather_to_all(world, &host::affinity(), stop)?;
    let members = world.topology().members_on(world.node());
    let masks = members.filter_map(|member| all.get(member as usize));
    Ok(host::core_share_of(masks.map(Vec::as_slice)))
}

/// Whether any host runs more than one member. All members know this.
fn shares_hosts(topology: &Topology) -> bool {
    topology.members() > topology.nodes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::threads::members_on;

    #[test]
    fn only_members_of_the_same_node_are_summed() {
        let sums: Vec<u64> = std::thread::scope(|scope| {
            let sum = |world: &dyn Exchange| {
                let own = 10u64.pow(world.member() as u32);
                sum_on_node(world, own, &Stop::default()).unwrap()
            };
            let threads: Vec<_> = members_on(&["a", "b", "a"])
                .into_iter()
                .map(|world| scope.spawn(move || sum(&world)))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(sums, [101, 10, 101]);
    }
}
