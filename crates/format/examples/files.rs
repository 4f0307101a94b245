//! Writes one file for checks with other programs: `cargo run -p feedline-format --example files -- PATH FORMAT
//! ELEMENT SAMPLES DIM...`, or many, one such line each on standard input, when called without arguments. Words of
//! the form `key=value` set options: `compression=zstd`, `group_rows=8`, `column=name:dtype:size` (again for each).

extern crate feedline_format as format;

use format::{Content, FormatKind, FormatOptions};
use model::shape::{Element, FileShape};
use model::spec::Column;
use std::error::Error;
use std::io::{BufRead, Write};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut scratch = Vec::new();
    if !words.is_empty() {
        return write(&words, &mut scratch);
    }
    for line in std::io::stdin().lock().lines() {
        let words: Vec<String> = line?.split_whitespace().map(str::to_owned).collect();
        write(&words, &mut scratch)?;
    }
    Ok(())
}

fn write(words: &[String], scratch: &mut Vec<u8>) -> Result<(), Box<dyn Error>> {
    let (settings, words): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| word.contains('='));
    let [path, format, element, samples, dims @ ..] = words.as_slice() else {
        return Err("PATH FORMAT ELEMENT SAMPLES DIM... [KEY=VALUE]...".into());
    };
    let format = FormatKind::named(format).ok_or("no such format")?.build(&options(&settings)?)?;
    let element = Element::named(element).ok_or("no such element type")?;
    let dims: Vec<u64> = dims.iter().map(|dim| dim.parse()).collect::<Result<_, _>>()?;
    let shape = FileShape { dims: &dims, element, samples: samples.parse()? };
    let mut file = std::fs::File::create(path)?;
    Ok(format.encode(&shape, &Content::new(1), 0, scratch, &mut |piece| file.write_all(piece))?)
}

fn options(settings: &[&String]) -> Result<FormatOptions, Box<dyn Error>> {
    let mut options = FormatOptions::default();
    for setting in settings {
        match setting.split_once('=') {
            Some(("compression", word)) => options.compression = word.to_owned(),
            Some(("group_rows", rows)) => options.columns.group_rows = rows.parse()?,
            Some(("column", column)) => {
                let [name, dtype, size] = column.split(':').collect::<Vec<_>>()[..] else {
                    return Err("column=name:dtype:size".into());
                };
                let (name, dtype) = (name.to_owned(), dtype.to_owned());
                options.columns.columns.push(Column { name, dtype, size: size.parse()?, read: true });
            }
            _ => return Err(format!("{setting} is no setting").into()),
        }
    }
    Ok(options)
}
