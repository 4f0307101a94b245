//! The configuration files that Hydra and DLIO bring with them, as data. The values are those of hydra-core 1.3 and of
//! DLIO 3.0 (MLCommons); DLIO 2.0 (Argonne) has the same workloads except the two for s3dlio.

/// Hydra's config groups.
pub(super) const HYDRA: &[(&str, &str)] = &[
    ("hydra/env/default", ""),
    ("hydra/help/default", DEFAULT_HELP),
    ("hydra/hydra_help/default", HYDRA_HELP),
    ("hydra/hydra_logging/default", HYDRA_LOGGING_DEFAULT),
    ("hydra/hydra_logging/disabled", LOGGING_DISABLED),
    ("hydra/hydra_logging/hydra_debug", HYDRA_LOGGING_DEBUG),
    ("hydra/hydra_logging/none", LOGGING_NONE),
    ("hydra/job_logging/default", JOB_LOGGING_DEFAULT),
    ("hydra/job_logging/disabled", LOGGING_DISABLED),
    ("hydra/job_logging/none", LOGGING_NONE),
    ("hydra/job_logging/stdout", JOB_LOGGING_STDOUT),
    ("hydra/output/default", OUTPUT_DEFAULT),
];

const LOGGING_DISABLED: &str = "{version: 1, root: {level: ERROR}, disable_existing_loggers: true}";
const LOGGING_NONE: &str = "{version: 1, root: null, disable_existing_loggers: false}";

const HYDRA_LOGGING_DEFAULT: &str = "
version: 1
formatters: {simple: {format: '[%(asctime)s][HYDRA] %(message)s'}}
handlers: {console: {class: logging.StreamHandler, formatter: simple, stream: 'ext://sys.stdout'}}
root: {level: INFO, handlers: [console]}
loggers: {logging_example: {level: DEBUG}}
disable_existing_loggers: false
";

const HYDRA_LOGGING_DEBUG: &str = "
version: 1
formatters: {simple: {format: '[%(asctime)s][%(name)s][%(levelname)s] - %(message)s'}}
handlers:
  file: {class: logging.FileHandler, mode: w, formatter: simple, filename: 'hydra-${hydra.job.name}.log', delay: true}
root: {level: ERROR, handlers: [file]}
loggers: {hydra: {level: DEBUG}}
disable_existing_loggers: false
";

const JOB_LOGGING_DEFAULT: &str = "
version: 1
formatters: {simple: {format: '[%(asctime)s][%(name)s][%(levelname)s] - %(message)s'}}
handlers:
  console: {class: logging.StreamHandler, formatter: simple, stream: 'ext://sys.stdout'}
  file:
    class: logging.FileHandler
    formatter: simple
    filename: ${hydra.runtime.output_dir}/${hydra.job.name}.log
root: {level: INFO, handlers: [console, file]}
disable_existing_loggers: false
";

const JOB_LOGGING_STDOUT: &str = "
version: 1
formatters: {simple: {format: '%(message)s'}}
handlers: {console: {class: logging.StreamHandler, formatter: simple, stream: 'ext://sys.stdout'}}
root: {level: INFO, handlers: [console]}
disable_existing_loggers: false
";

const OUTPUT_DEFAULT: &str = "# @package hydra
run: {dir: 'outputs/${now:%Y-%m-%d}/${now:%H-%M-%S}'}
sweep: {dir: 'multirun/${now:%Y-%m-%d}/${now:%H-%M-%S}', subdir: '${hydra.job.num}'}
";

const DEFAULT_HELP: &str = "
app_name: ${hydra.job.name}
header: |
  ${hydra.help.app_name} takes Hydra's command lines.
footer: |
  --hydra-help shows the flags and Hydra's own config groups.
template: |
  ${hydra.help.header}
  Config groups (GROUP=OPTION chooses an option):

  $APP_CONFIG_GROUPS

  The configuration (KEY=VALUE changes a key):

  $CONFIG

  ${hydra.help.footer}
";

const HYDRA_HELP: &str = "
template: |
  Hydra (${hydra.runtime.version}), the command line of this program.

  Flags:
  $FLAGS_HELP

  Hydra's config groups (GROUP=OPTION chooses an option, for example hydra/job_logging=stdout):

  $HYDRA_CONFIG_GROUPS

  --cfg hydra shows Hydra's settings.
";

/// What Hydra declares in its program instead of files.
pub(super) const SCHEMA: &[(&str, &str)] = &[
    ("hydra/config", HYDRA_CONFIG),
    ("hydra/launcher/basic", "_target_: hydra._internal.core_plugins.basic_launcher.BasicLauncher"),
    (
        "hydra/sweeper/basic",
        "{_target_: hydra._internal.core_plugins.basic_sweeper.BasicSweeper, max_batch_size: null, params: null}",
    ),
];

const HYDRA_CONFIG: &str = "
defaults:
- output: default
- launcher: basic
- sweeper: basic
- help: default
- hydra_help: default
- hydra_logging: default
- job_logging: default
- callbacks: null
- env: default
mode: null
searchpath: []
run: {dir: '???'}
sweep: {dir: '???', subdir: '???'}
hydra_logging: '???'
job_logging: '???'
sweeper: '???'
launcher: '???'
callbacks: {}
help: {app_name: '???', header: '???', footer: '???', template: '???'}
hydra_help: {hydra_help: '???', template: '???'}
output_subdir: .hydra
overrides: {hydra: [], task: []}
job:
  name: '???'
  chdir: null
  override_dirname: '???'
  id: '???'
  num: '???'
  config_name: '???'
  env_set: {}
  env_copy: []
  config: {override_dirname: {kv_sep: '=', item_sep: ',', exclude_keys: []}}
runtime:
  version: '???'
  version_base: '???'
  cwd: '???'
  config_sources: '???'
  output_dir: '???'
  choices: {}
verbose: false
";

/// DLIO's files that are not workloads.
pub(super) const DLIO: &[(&str, &str)] = &[
    ("config", DLIO_CONFIG),
    ("hydra/help/dlio_benchmark_help", DLIO_HELP),
    ("hydra/job_logging/custom", JOB_LOGGING_CUSTOM),
];

const DLIO_CONFIG: &str = "
defaults:
- _self_
- workload: default
- override hydra/help: dlio_benchmark_help.yaml
- override hydra/job_logging: disabled
- override hydra/hydra_logging: disabled
hydra:
  run:
    dir: ./hydra_log/${workload.model.name}/${now:%Y-%m-%d}-${now:%H-%M-%S}
";

const JOB_LOGGING_CUSTOM: &str = "
version: 1
formatters: {simple: {format: '[%(levelname)s] - %(message)s [%(pathname)s:%(lineno)d]'}}
handlers: {console: {class: logging.StreamHandler, formatter: simple, stream: 'ext://sys.stdout'}}
root: {handlers: [console]}
disable_existing_loggers: false
";

const DLIO_HELP: &str = "
app_name: dlio_benchmark
header: =========================== ${hydra.help.app_name} ===========================
footer: |-
  This is feedline, which replaces DLIO: 'feedline docs dlio' lists the keys and the differences.
template: |-

  ${hydra.help.header}

  A benchmark for the storage that feeds deep-learning accelerators, with DLIO's command line.

  Run a workload:    dlio_benchmark workload=unet3d_h100
  Change a key:      dlio_benchmark workload=unet3d_h100 ++workload.reader.read_threads=8
  Your own workload: dlio_benchmark workload=mine --config-dir=DIR   (the file DIR/workload/mine.yaml)

  Available options for $APP_CONFIG_GROUPS
  The configuration of this command line, which is also an example of a workload file:

  -------
  $CONFIG
  -------
  The files of a result are written to hydra.run.dir; --hydra-help shows the flags.

  ${hydra.help.footer}
";

/// DLIO's workloads: our built-in workload with that name, and the keys with other values.
pub(super) const WORKLOADS: &[(&str, &str)] = &[
    ("bert_v100", "workflow: {debug: false}"),
    ("cosmoflow_a100", ""),
    ("cosmoflow_h100", ""),
    ("cosmoflow_v100", ""),
    ("default", ""),
    ("dlrm", ""),
    (
        "dlrm_s3dlio_file",
        "{storage: {storage_root: /mnt/test}, dataset: {data_folder: /mnt/test/dlrm}, logging: {verbosity: INFO}}",
    ),
    ("dlrm_s3dlio_s3", "{evaluation: {eval_time: 0.0, epochs_between_evals: 0}, logging: {verbosity: INFO}}"),
    ("llama_1t", "workflow: {generate_data: true, train: true}"),
    ("llama_405b", ""),
    ("llama_70b", ""),
    ("llama_70b_zero3", ""),
    ("llama_7b", ""),
    ("llama_7b_zero3", ""),
    ("llama_8b_zero3", ""),
    ("megatron_deepspeed_LLNL", ""),
    ("resnet50_a100", ""),
    ("resnet50_h100", ""),
    ("resnet50_tf", ""),
    ("resnet50_v100", ""),
    ("unet3d_a100", ""),
    ("unet3d_a100_s3", S3_KEYS),
    ("unet3d_h100", ""),
    ("unet3d_h100_s3", S3_KEYS),
    ("unet3d_v100", ""),
    ("unet3d_v100_s3", S3_KEYS),
];

/// Placeholders that DLIO's files have in place of credentials.
const S3_KEYS: &str =
    "storage: {storage_options: {access_key_id: access-key, secret_access_key: secret-key}}";
