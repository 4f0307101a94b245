//! What the binary contains that is found out while it is built: facts about its version, and the pages of the book.

#[path = "build/pages.rs"]
mod pages;
#[path = "build/version.rs"]
mod version;

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    embed_version();
    pages::embed()
}

fn embed_version() {
    for line in version::directives() {
        println!("{line}");
    }
}
