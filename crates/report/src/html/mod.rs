//! Results as HTML pages. A page is one file that needs no network: style, script and data are in it. Its policy
//! forbids any request and any script other than its own two, so that text from a result can never act.
//!
//! A page is built from the documents of a result, not from the program that measured it, so that old results, results
//! of other versions and damaged ones can be shown as far as they go. Every plot has its numbers as a table. Without
//! JavaScript all of it can be read; with it, plots over time can be enlarged.

mod audit;
mod checkpoints;
mod compare;
mod doc;
mod latency;
mod parts;
mod ranks;
mod requests;
mod run;
mod study;
mod time;

pub use audit::{AuditDocuments, audit};
pub use compare::{Difference, compare};
pub use parts::{HtmlPage, Notice, PageTone};
pub use run::{RunDocuments, run};
pub use study::{capacity, stall, sweep};

use sha2::{Digest, Sha256};

use crate::plot::{escaped, patterns};

/// uPlot 1.6.32 (MIT): draws lines over time on a canvas, and lets the reader enlarge them. Its licence is kept in the
/// page.
const UPLOT: &str = include_str!("assets/uplot.js");
const UPLOT_STYLE: &str = include_str!("assets/uplot.css");
const UPLOT_LICENCE: &str = include_str!("assets/uplot-LICENSE");
const STYLE: &str = include_str!("assets/page.css");
const SCRIPT: &str = include_str!("assets/page.js");

impl HtmlPage {
    /// The page as one file.
    pub fn html(&self) -> String {
        let policy = format!(
            "default-src 'none'; style-src 'unsafe-inline'; script-src '{}' '{}'; img-src data:; base-uri 'none'; \
             form-action 'none'",
            source_hash(UPLOT),
            source_hash(SCRIPT)
        );
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"generator\" content=\"feedline\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
             <!--\nuPlot:\n{UPLOT_LICENCE}-->\n<style>{UPLOT_STYLE}\n{STYLE}</style>\n</head>\n<body>\n\
             <svg class=\"patterns\" width=\"0\" height=\"0\" aria-hidden=\"true\">{}</svg>\n{}\
             <script>{UPLOT}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
            patterns(),
            self.body(),
            title = escaped(&self.title),
        )
    }
}

/// The hash by which the policy of a page allows a script.
fn source_hash(script: &str) -> String {
    format!("sha256-{}", base64(&Sha256::digest(script.as_bytes())))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for digit in 0..4 {
            match digit <= group.len() {
                true => text.push(char::from(DIGITS[(bits >> (18 - 6 * digit)) as usize & 63])),
                false => text.push('='),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn markup_in_a_title_is_text() {
        let page = HtmlPage { title: "<script>alert(1)</script>".to_owned(), ..HtmlPage::default() };
        let html = page.html();
        assert!(!html.contains("<script>alert") && html.contains("&lt;script&gt;alert"));
        assert!(html.len() < 400 * 1024, "the page itself is small: {}", html.len());
    }
}
