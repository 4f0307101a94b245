//! The texts of `--help`, `--hydra-help` and `--info`.

use model::hydra::{ConfigPart, Configuration, Environment, Repository};

use super::HYDRA_VERSION;
use super::flags::flags_help;

/// `--help`: the template of DLIO, which a configuration can replace.
pub(super) fn help(
    repository: &Repository<'_>,
    configuration: &Configuration,
    environment: &Environment<'_>,
    resolve: Option<&Environment<'_>>,
) -> anyhow::Result<String> {
    let template = configuration.text("hydra.help.template", environment)?.unwrap_or_default();
    let config = configuration.show(ConfigPart::Job, None, resolve)?.unwrap_or_default();
    Ok(fill(&template, repository, &config))
}

/// `--hydra-help`: the flags and Hydra's groups.
pub(super) fn hydra_help(
    repository: &Repository<'_>,
    configuration: &Configuration,
    environment: &Environment<'_>,
) -> anyhow::Result<String> {
    let template = configuration.text("hydra.hydra_help.template", environment)?.unwrap_or_default();
    let config = configuration.show(ConfigPart::Hydra, None, None)?.unwrap_or_default();
    Ok(fill(&template, repository, &config))
}

fn fill(template: &str, repository: &Repository<'_>, config: &str) -> String {
    let is_hydra = |group: &str| group == "hydra" || group.starts_with("hydra/");
    let groups = |of_hydra: bool| {
        let groups = repository.groups().into_iter().filter(|group| is_hydra(group) == of_hydra);
        let line = |group: String| format!("{group}: {}\n", repository.options(&group).join(", "));
        groups.map(line).collect::<String>()
    };
    let filled = template
        .replace("$FLAGS_HELP", &flags_help())
        .replace("$HYDRA_CONFIG_GROUPS", &groups(true))
        .replace("$APP_CONFIG_GROUPS", &groups(false))
        .replace("$CONFIG", config);
    format!("{filled}\n")
}

/// `--info`: one topic, or everything.
pub(super) fn info(topic: &str, configuration: &Configuration) -> anyhow::Result<String> {
    let config = || configuration.show(ConfigPart::Job, None, None).map(Option::unwrap_or_default);
    let plugins = "Plugins\n*******\nHydra's basic launcher and basic sweeper; others cannot be loaded.\n";
    let all_config = || {
        Ok::<_, anyhow::Error>(format!(
            "{}{}{}\nConfig\n******\n{}",
            search_path(configuration),
            defaults_tree(configuration),
            defaults(configuration),
            config()?
        ))
    };
    Ok(match topic {
        "plugins" => plugins.to_owned(),
        "searchpath" => search_path(configuration),
        "defaults" => defaults(configuration),
        "defaults-tree" => defaults_tree(configuration),
        "config" => all_config()?,
        _ => format!("Hydra {HYDRA_VERSION}\n===========\n{plugins}{}", all_config()?),
    })
}

fn search_path(configuration: &Configuration) -> String {
    let table = table(["Provider", "Search path"], &configuration.sources_table());
    format!("\nConfig search path\n******************\n{table}")
}

fn defaults(configuration: &Configuration) -> String {
    let table = table(["Config path", "Package", "_self_", "Parent"], &configuration.defaults_table());
    format!("\nDefaults List\n*************\n{table}")
}

fn defaults_tree(configuration: &Configuration) -> String {
    format!("\nDefaults Tree\n*************\n{}\n", configuration.defaults_tree().join("\n"))
}

fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let head = head.map(str::to_owned);
    let width = |column: usize| {
        let cells = rows.iter().chain([&head]).map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let line = |row: &[String; N]| {
        let cells = row.iter().enumerate().map(|(column, cell)| format!("| {cell:<0$} ", width(column)));
        format!("{}|", cells.collect::<String>())
    };
    let rule = "-".repeat(line(&head).chars().count());
    let rows: String = rows.iter().map(|row| format!("{}\n", line(row))).collect();
    format!("{}\n{rule}\n{rows}{rule}\n", line(&head))
}
