//! Links the library so that it loads on C libraries older than the one it is built with.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // `dlsym` was in libdl before glibc 2.34; newer ones have an empty library of that name.
    println!("cargo:rustc-link-arg-cdylib=-Wl,--push-state,--no-as-needed,-l:libdl.so.2,--pop-state");
    println!("cargo:rustc-link-arg-cdylib=-Wl,-z,now");
}
