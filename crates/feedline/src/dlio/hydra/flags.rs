//! The flags of Hydra's command line. They may stand anywhere between the overrides.

use anyhow::{anyhow, bail};

/// What `--info` shows.
pub(super) const INFO_TOPICS: [&str; 6] =
    ["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"];

/// A command line, split into flags and overrides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HydraFlags {
    pub help: bool,
    pub hydra_help: bool,
    pub version: bool,
    pub run: bool,
    pub multirun: bool,
    pub resolve: bool,
    pub cfg: Option<String>,
    pub info: Option<String>,
    pub package: Option<String>,
    pub config_dir: Option<String>,
    pub config_path: Option<String>,
    pub config_name: Option<String>,
    pub overrides: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlagValue {
    None,
    Needed,
    Optional,
}

/// Name, short form, value, help.
const FLAGS: [(&str, &str, FlagValue, &str); 14] = [
    ("--help", "-h", FlagValue::None, "this program's help, with the composed configuration"),
    ("--hydra-help", "", FlagValue::None, "the flags, and the config groups of Hydra"),
    ("--version", "", FlagValue::None, "the version"),
    ("--cfg", "-c", FlagValue::Needed, "print the configuration and end: job, hydra or all"),
    ("--resolve", "", FlagValue::None, "with --cfg or --help: resolve interpolations"),
    ("--package", "-p", FlagValue::Needed, "with --cfg: print only this part, such as workload.reader"),
    ("--run", "-r", FlagValue::None, "run one job (the default)"),
    ("--multirun", "-m", FlagValue::None, "run one job for each combination of values"),
    (
        "--config-dir",
        "-cd",
        FlagValue::Needed,
        "a folder with more configuration files; packaged files win over it",
    ),
    ("--config-path", "-cp", FlagValue::Needed, "a folder that replaces the packaged files (absolute path)"),
    ("--config-name", "-cn", FlagValue::Needed, "the primary configuration file; without it: config"),
    ("--info", "-i", FlagValue::Optional, "all, config, defaults, defaults-tree, plugins or searchpath"),
    ("--shell-completion", "-sc", FlagValue::None, "not supported"),
    ("--experimental-rerun", "", FlagValue::Needed, "not supported"),
];

/// The flags and what they do, one line each.
pub(super) fn flags_help() -> String {
    let mut text = String::new();
    for (name, short, _, help) in FLAGS {
        let comma = if short.is_empty() { "" } else { "," };
        text.push_str(&format!("{name}{comma}{short} : {help}\n"));
    }
    text.push_str(
        "Overrides : key=value changes a key, +key=value adds one, ++key=value does either, ~key removes one",
    );
    text
}

/// The full name of a flag that is given by its name, its short form, or a unique start of its name.
fn full_name(given: &str) -> anyhow::Result<(&'static str, FlagValue)> {
    if let Some((name, _, value, _)) =
        FLAGS.iter().find(|(name, short, ..)| *name == given || *short == given)
    {
        return Ok((name, *value));
    }
    let starts: Vec<_> =
        FLAGS.iter().filter(|(name, ..)| given.len() > 2 && name.starts_with(given)).collect();
    match starts[..] {
        [(name, _, value, _)] => Ok((name, *value)),
        [] => bail!("there is no flag '{given}'; --hydra-help lists the flags"),
        _ => {
            let names: Vec<&str> = starts.iter().map(|(name, ..)| *name).collect();
            bail!("the flag '{given}' can mean {}", names.join(" or "))
        }
    }
}

impl HydraFlags {
    pub(super) fn parse(arguments: &[String]) -> anyhow::Result<HydraFlags> {
        let mut flags = HydraFlags::default();
        let mut rest = arguments.iter().peekable();
        while let Some(argument) = rest.next() {
            if argument == "--" {
                flags.overrides.extend(rest.cloned());
                break;
            }
            if !argument.starts_with('-') {
                flags.overrides.push(argument.clone());
                continue;
            }
            let (given, attached) = match argument.split_once('=') {
                Some((given, value)) => (given, Some(value.to_owned())),
                None => (argument.as_str(), None),
            };
            let (name, kind) = full_name(given)?;
            let value = match kind {
                FlagValue::None if attached.is_some() => bail!("{name} takes no value"),
                FlagValue::None => None,
                FlagValue::Needed => match attached {
                    Some(value) => Some(value),
                    None => Some(rest.next().ok_or_else(|| anyhow!("{name} needs a value"))?.clone()),
                },
                FlagValue::Optional => {
                    attached.or_else(|| rest.next_if(|next| INFO_TOPICS.contains(&next.as_str())).cloned())
                }
            };
            flags.set(name, value)?;
        }
        flags.check()?;
        Ok(flags)
    }

    fn set(&mut self, name: &str, value: Option<String>) -> anyhow::Result<()> {
        match name {
            "--help" => self.help = true,
            "--hydra-help" => self.hydra_help = true,
            "--version" => self.version = true,
            "--run" => self.run = true,
            "--multirun" => self.multirun = true,
            "--resolve" => self.resolve = true,
            "--cfg" => self.cfg = value,
            "--package" => self.package = value,
            "--config-dir" => self.config_dir = value,
            "--config-path" => self.config_path = value,
            "--config-name" => self.config_name = value,
            "--info" => self.info = Some(value.unwrap_or_else(|| "all".into())),
            "--shell-completion" => bail!("--shell-completion is not supported"),
            "--experimental-rerun" => {
                bail!("--experimental-rerun is not supported; give the overrides in overrides.yaml again")
            }
            _ => bail!("there is no flag '{name}'"),
        }
        Ok(())
    }

    fn check(&self) -> anyhow::Result<()> {
        if let Some(part) = &self.cfg
            && !["job", "hydra", "all"].contains(&part.as_str())
        {
            bail!("--cfg is job, hydra or all, not '{part}'");
        }
        if let Some(topic) = &self.info
            && !INFO_TOPICS.contains(&topic.as_str())
        {
            bail!("--info is one of {}, not '{topic}'", INFO_TOPICS.join(", "));
        }
        if self.resolve && self.cfg.is_none() && !self.help {
            bail!("--resolve needs --cfg or --help");
        }
        let commands = [self.run, self.multirun, self.cfg.is_some(), self.info.is_some()];
        if commands.iter().filter(|is_given| **is_given).count() > 1 {
            bail!("only one of --run, --multirun, --cfg and --info can be given");
        }
        Ok(())
    }
}
