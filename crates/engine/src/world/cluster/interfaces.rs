//! The addresses at which other members can reach this process.

use std::net::IpAddr;

use if_addrs::Interface;

/// Addresses of this host that `asked` selects: the name of an interface, an address, or a network such as
/// `10.1.0.0/16`. Without it, all addresses, those of physical networks first. An error lists what there is.
pub(super) fn addresses(asked: Option<&str>) -> Result<Vec<IpAddr>, String> {
    let mut there =
        if_addrs::get_if_addrs().map_err(|cause| format!("cannot list network interfaces: {cause}"))?;
    there.retain(|interface| !interface.is_link_local());
    select(&there, asked)
}

fn select(there: &[Interface], asked: Option<&str>) -> Result<Vec<IpAddr>, String> {
    let mut chosen: Vec<&Interface> =
        there.iter().filter(|one| asked.is_none_or(|asked| matches(one, asked))).collect();
    if let Some(asked) = asked.filter(|_| chosen.is_empty()) {
        let known: Vec<String> = there.iter().map(|one| format!("{} {}", one.name, one.ip())).collect();
        return Err(format!("--interface {asked} is no network of this host; it has {}", known.join(", ")));
    }
    chosen.sort_by_key(|one| (one.is_loopback(), is_virtual(&one.name), one.ip().is_ipv6()));
    Ok(chosen.into_iter().map(Interface::ip).collect())
}

/// Whether the name is that of a bridge or tunnel between containers of one host.
fn is_virtual(name: &str) -> bool {
    ["docker", "br-", "virbr", "veth", "cni", "flannel"].iter().any(|prefix| name.starts_with(prefix))
}

fn matches(interface: &Interface, asked: &str) -> bool {
    if interface.name == asked || asked.parse() == Ok(interface.ip()) {
        return true;
    }
    let Some((network, bits)) = asked.split_once('/') else { return false };
    let (Ok(network), Ok(bits)) = (network.parse(), bits.parse()) else { return false };
    is_in(interface.ip(), network, bits)
}

fn is_in(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let prefix =
        |value: u128, width: u32| (bits <= width).then(|| value.checked_shr(width - bits).unwrap_or(0));
    match (address, network) {
        (IpAddr::V4(here), IpAddr::V4(there)) => {
            let of = |address: std::net::Ipv4Addr| prefix(u128::from(u32::from(address)), 32);
            of(here).is_some() && of(here) == of(there)
        }
        (IpAddr::V6(here), IpAddr::V6(there)) => {
            let of = |address: std::net::Ipv6Addr| prefix(u128::from(address), 128);
            of(here).is_some() && of(here) == of(there)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_an_address_with_a_number_of_bits() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for (address, network, bits, expected) in [
            ("10.77.0.1", "10.77.0.0", 24, true),
            ("10.77.1.1", "10.77.0.0", 24, false),
            ("10.77.1.1", "0.0.0.0", 0, true),
            ("10.77.1.1", "10.77.1.1", 32, true),
            ("10.77.1.1", "10.77.1.1", 33, false),
            ("fd00::1", "fd00::", 8, true),
            ("fd00::1", "10.0.0.0", 8, false),
        ] {
            assert_eq!(is_in(ip(address), ip(network), bits), expected, "{address} in {network}/{bits}");
        }
    }

    #[test]
    fn loopback_comes_last_and_an_unknown_interface_is_an_error_that_lists_the_others() {
        let there = if_addrs::get_if_addrs().unwrap();
        let all = select(&there, None).unwrap();
        let loopback = all.iter().position(IpAddr::is_loopback).unwrap();
        assert!(all[loopback..].iter().all(IpAddr::is_loopback), "{all:?}");
        assert_eq!(select(&there, Some("127.0.0.1")).unwrap(), ["127.0.0.1".parse::<IpAddr>().unwrap()]);
        let refused = select(&there, Some("ib7")).unwrap_err();
        assert!(refused.starts_with("--interface ib7 is no network of this host; it has "), "{refused}");
        assert!(refused.contains("lo 127.0.0.1"), "{refused}");
    }
}
