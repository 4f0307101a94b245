//! The page of exit codes.

use super::{cell, table};
use crate::exit::Exit;

const INTRODUCTION: &str = "\
# Exit codes

With `--json`, an error is one object on stdout, which has the code as `exit_code`
([results](results.md#errors-with---json)).

";

const NOTES: &str = "
`feedline audit` ends with the exit code of the job: 128 plus the number of the signal, if one ended it; 126 or 127
if its program cannot be run. The codes of the table are those of feedline itself: 3 if the job was not started, 5
with `--fail-on-finding`, if the job succeeded and has a fault.

`feedline inspect` ends with the highest code of all files, `feedline validate` with that of the worst result.

Under the name `dlio_benchmark`, an invalid verdict is exit code 0 unless `FEEDLINE_STRICT` or `output.strict` is
set ([environment variables](environment.md#runs-in-dlios-form)).
";

pub(super) fn text() -> String {
    let rows = Exit::ALL.iter().map(|(exit, meaning)| vec![exit.code().to_string(), cell(meaning)]);
    format!("{INTRODUCTION}{}{NOTES}", table(&["exit code", "meaning"], rows))
}
