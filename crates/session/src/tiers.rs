//! Where checkpoints go: the tiers that flags and workload select, and whether they have enough space. Problems are
//! reported before anything is written.

use std::sync::Arc;

use engine::World;
use model::checkpoint::manifest::Moment;
use model::checkpoint::{CheckpointPlan, SaveRequest, Scale, Schedule};
use model::location::Location;
use model::plan::{Medium, StorePlan};
use model::spec::{CheckpointScheme, SaveMode, Spec};
use model::warning::Warning;
use store::{Mode, Selection, Sim, SimTier, Store, Tier};

use crate::ask::Ask;
use crate::backend::{PlacedBackend, default_store, placed};
use crate::error::Error;
use crate::folder::check_place;

/// One location for checkpoints.
#[derive(Clone, Debug)]
pub(crate) struct TierLocation {
    pub selection: Selection,
    pub place: Location,
    /// What was given to reach it but is not used.
    warnings: Vec<Warning>,
}

/// The locations that a run uses.
#[derive(Clone, Debug)]
pub(crate) struct Tiers {
    pub last: TierLocation,
    pub fast: Option<TierLocation>,
}

/// The opened locations.
#[derive(Debug)]
pub(crate) struct OpenTiers {
    pub last: Box<dyn Tier>,
    pub fast: Option<Box<dyn Tier>>,
}

impl Tiers {
    /// The tiers that the workload names, for a run that reads from `store`.
    pub(crate) fn choose(ask: &Ask, spec: &Spec, store: &Selection) -> Result<Tiers, Error> {
        let (asked, chosen) = (&spec.checkpoint, TierChoice { ask, spec });
        let last = chosen.site(
            ("checkpoint.checkpoint_folder", &asked.checkpoint_folder),
            ("checkpoint.store", asked.store.as_deref()),
            store,
        )?;
        // A named fast tier counts in every mode: an earlier run may have left checkpoints there.
        let two = asked.mode_of_save == SaveMode::BurstBuffer || asked.burst_folder.is_some();
        let fast = two.then(|| chosen.fast_site(&last)).transpose()?;
        Ok(Tiers { last, fast })
    }

    /// What was given to reach object stores but is not used.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        self.sites().flat_map(|site| site.warnings.iter().cloned()).collect()
    }

    fn sites(&self) -> impl Iterator<Item = &TierLocation> {
        self.fast.iter().chain([&self.last])
    }

    /// The facts that the plan needs.
    pub(crate) fn request(&self, ranks: u64, scale: Scale) -> SaveRequest {
        let fast = self.fast.as_ref().map(TierLocation::plan);
        SaveRequest { ranks, scale, last: self.last.plan(), fast }
    }

    /// Checks that the folders are usable here and the disks large enough: the last tier for all files of a checkpoint,
    /// the fast tier for those of this node's ranks.
    pub(crate) fn check(&self, plan: &CheckpointPlan, taken: u64, world: &dyn World) -> Result<(), Error> {
        for site in self.sites().filter(|site| site.holds_files()) {
            check_place(&site.place, "checkpoint folder")?;
        }
        let bytes = plan.geometry.total_bytes();
        let replaced = match plan.schedule {
            // The checkpoint that is replaced stays until the new one is complete.
            Schedule::Alone { saves, .. } => replaced_bytes(&self.last.place, saves).saturating_sub(bytes),
            _ => 0,
        };
        self.last.check_room(bytes, plan.at_once(taken), replaced, plan.geometry.scale)?;
        match &self.fast {
            Some(fast) if plan.save == SaveMode::BurstBuffer => {
                let here = bytes_on_node(plan, world);
                fast.check_room(here, taken.min(plan.slots), 0, plan.geometry.scale)
            }
            _ => Ok(()),
        }
    }

    /// Opens the tiers. A simulated device that is named twice, here or by the run's backend, is a single device.
    pub(crate) fn open(&self, beside: Option<(&str, &dyn Store)>) -> Result<OpenTiers, Error> {
        let mut devices: Vec<(String, Sim)> = Vec::new();
        if let Some((text, store)) = beside {
            devices.extend(store.simulated().map(|device| (text.to_owned(), device)));
        }
        let last = self.last.open(&mut devices)?;
        let fast = self.fast.as_ref().map(|fast| fast.open(&mut devices)).transpose()?;
        Ok(OpenTiers { last, fast })
    }
}

impl TierLocation {
    pub(crate) fn holds_files(&self) -> bool {
        self.plan().holds_files
    }

    fn plan(&self) -> StorePlan {
        self.selection.plan()
    }

    fn open(&self, devices: &mut Vec<(String, Sim)>) -> Result<Box<dyn Tier>, Error> {
        let StorePlan { text, medium, .. } = self.plan();
        if let Some((_, device)) = devices.iter().find(|(known, _)| *known == text) {
            return Ok(Box::new(SimTier::on(Arc::new(device.clone()))));
        }
        if medium == Medium::Simulated {
            let store = self.selection.open(self.place.clone()).map_err(Error::StoreArguments)?;
            devices.extend(store.simulated().map(|device| (text, device)));
            return self.open(devices);
        }
        self.selection.tier(self.place.clone()).map_err(Error::CheckpointFolder)
    }

    /// Checks that the disk has space for `count` checkpoints in addition to those that they replace.
    fn check_room(&self, bytes: u64, count: u64, replaced: u64, scale: Scale) -> Result<(), Error> {
        if !self.holds_files() || count == 0 {
            return Ok(());
        }
        // If the file system does not report its free space, a full disk causes an error later. An object store
        // reports none.
        let Location::Path(folder) = &self.place else { return Ok(()) };
        let Ok(free) = store::free_bytes(folder) else { return Ok(()) };
        let needed = u128::from(bytes) * u128::from(count);
        let room = u128::from(free) + u128::from(replaced);
        if needed <= room {
            return Ok(());
        }
        Err(Error::NoRoomForCheckpoints {
            count,
            needed: u64::try_from(needed).unwrap_or(u64::MAX),
            folder: folder.clone(),
            free,
            smaller: scale_that_fits(needed, room, scale),
        })
    }
}

/// What the locations of checkpoints are chosen from.
struct TierChoice<'a> {
    ask: &'a Ask,
    spec: &'a Spec,
}

impl TierChoice<'_> {
    /// The tier at a folder. If no backend is named, it is `like` if that can store anything there, else the default of
    /// the location: one tier may be in a folder and another one in an object store.
    fn site(
        &self,
        (folder_key, folder): (&'static str, &str),
        (key, store): (&'static str, Option<&str>),
        like: &Selection,
    ) -> Result<TierLocation, Error> {
        let scheme = self.ask.checkpoint_scheme.filter(|scheme| self.spec.takes_scheme(folder, *scheme));
        let place = self.spec.checkpoint_location(folder, scheme);
        place.objects()?;
        let is_direct = scheme == Some(CheckpointScheme::Files { odirect: true });
        let mode = Mode { odirect: like.mode.odirect || is_direct, ..like.mode };
        let name = match store {
            None if like.place().includes(&place) => None,
            None => Some(default_store(&place, mode)),
            Some(name) => Some(name),
        };
        let selection = match name {
            None => like.clone(),
            Some(name) => {
                let unknown = |cause| Error::UnknownTier { key, cause };
                let selection = self.ask.registry.select(name, mode).map_err(unknown)?;
                selection.check().map_err(Error::StoreArguments)?;
                selection
            }
        };
        let PlacedBackend { selection, warnings } =
            placed(selection, self.ask, self.spec, &place).map_err(|error| error.of_tier(key, folder_key))?;
        Ok(TierLocation { selection, place, warnings })
    }

    fn fast_site(&self, last: &TierLocation) -> Result<TierLocation, Error> {
        let asked = &self.spec.checkpoint;
        let site = self.site(
            ("checkpoint.burst_folder", asked.burst_folder.as_deref().unwrap_or_default()),
            ("checkpoint.burst_store", asked.burst_store.as_deref()),
            &last.selection,
        )?;
        if site.holds_files() != last.holds_files() {
            return Err(Error::MixedTiers { fast: site.selection.text(), last: last.selection.text() });
        }
        let missing = asked.burst_folder.is_none() && site.holds_files();
        let same = site.holds_files() && site.place == last.place;
        match (missing, same) {
            (true, _) => Err(Error::NoFastTier),
            (false, true) => Err(Error::SameTier),
            (false, false) => Ok(site),
        }
    }
}

/// Bytes of a checkpoint that the ranks of this member's node save.
fn bytes_on_node(plan: &CheckpointPlan, world: &dyn World) -> u64 {
    let (topology, geometry) = (world.topology(), &plan.geometry);
    let ranks = topology.members_on(world.node()).flat_map(|member| topology.ranks(member, geometry.ranks));
    ranks.map(|rank| geometry.rank_bytes(rank)).sum()
}

/// Bytes of an earlier run's checkpoints in a folder that a run without training replaces.
fn replaced_bytes(place: &Location, saves: u64) -> u64 {
    let Location::Path(folder) = place else { return 0 };
    let folders = (1..=saves).map(|step| folder.join(Moment { epoch: 1, step }.folder()));
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
    files.filter_map(|file| file.metadata().ok()).map(|facts| facts.len()).sum()
}

/// A smaller scale that would fit.
fn scale_that_fits(needed: u128, room: u128, scale: Scale) -> Scale {
    let mut denominator = 2u64;
    while needed / u128::from(denominator) > room / 2 && denominator < 1 << 40 {
        denominator *= 2;
    }
    Scale { denominator: scale.denominator.saturating_mul(denominator), ..scale }
}
