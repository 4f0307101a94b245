//! Writes one file for checks with other programs: `cargo run -p format --example files -- PATH FORMAT
//! ELEMENT SAMPLES DIM...`, or many, one such line each on standard input, when called without arguments.

use format::Content;
use model::shape::{Element, FileShape};
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
    let [path, format, element, samples, dims @ ..] = words else {
        return Err("PATH FORMAT ELEMENT SAMPLES DIM...".into());
    };
    let format = format::named(format).ok_or("no such format")?;
    let element = Element::named(element).ok_or("no such element type")?;
    let dims: Vec<u64> = dims.iter().map(|dim| dim.parse()).collect::<Result<_, _>>()?;
    let shape = FileShape { dims: &dims, element, samples: samples.parse()? };
    let mut file = std::fs::File::create(path)?;
    Ok(format.encode(&shape, &Content::new(1), 0, scratch, &mut |piece| file.write_all(piece))?)
}
