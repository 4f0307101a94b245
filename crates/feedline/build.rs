//! What the binary contains that is found out while it is built: facts about its version.

#[path = "build/version.rs"]
mod version;

fn main() {
    embed_version();
}

fn embed_version() {
    for line in version::directives() {
        println!("{line}");
    }
}
