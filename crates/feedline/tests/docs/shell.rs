//! The commands in a shell script, as lists of words. It understands what examples use: quotes, comments, continued
//! lines, pipes, redirections, here-documents and command substitution. Nothing is expanded. It needs nothing but the
//! standard library, because unit tests of the program include it, too.

/// A simple command: the line of its first word, from 0, and its words.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Simple {
    pub line: usize,
    pub words: Vec<String>,
}

/// Programs and words of the shell that are followed by a command.
const BEFORE_A_COMMAND: [&str; 26] = [
    "mpirun", "mpiexec", "srun", "env", "time", "sudo", "nohup", "exec", "strace", "numactl", "taskset",
    "timeout", "unshare", "flock", "nice", "pipx", "watch", "do", "then", "else", "if", "while", "until",
    "!", "{", "sbatch",
];

/// Words after which the name of the program is that of a package.
const BEFORE_A_PACKAGE: [&str; 8] =
    ["apt", "apt-get", "dpkg", "pip", "install", "uninstall", "remove", "purge"];

/// Every simple command of a script, also those inside of `$(..)`.
pub(crate) fn commands(script: &str) -> Vec<Simple> {
    let mut reader = Reader { rest: script.chars().collect(), ..Reader::default() };
    reader.read();
    reader.found
}

/// The calls of one of these programs in a script, each with its line and its words from the name of the program on.
pub(crate) fn calls(script: &str, programs: &[&str]) -> Vec<Simple> {
    let mut found = Vec::new();
    for command in commands(script) {
        let mut words = command.words.as_slice();
        while let Some(at) = program_at(words, programs) {
            found.push(Simple { line: command.line, words: words[at..].to_vec() });
            // A command can be the argument of another one, after `--`.
            let Some(dashes) = words[at..].iter().position(|word| word == "--") else { break };
            words = &words[at + dashes + 1..];
        }
    }
    found
}

/// Where the program is in the words of a command.
fn program_at(words: &[String], programs: &[&str]) -> Option<usize> {
    let is_assignment = |word: &String| {
        let name = word.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| {
            !name.is_empty() && name.chars().all(|letter| letter == '_' || letter.is_ascii_alphanumeric())
        })
    };
    let first = words.iter().position(|word| !is_assignment(word))?;
    let is_program = |word: &String| programs.contains(&word.rsplit('/').next().unwrap_or(word));
    if is_program(&words[first]) {
        return Some(first);
    }
    let at = words.iter().position(is_program)?;
    let is_package = words[..at].iter().any(|word| BEFORE_A_PACKAGE.contains(&word.as_str()));
    (BEFORE_A_COMMAND.contains(&words[first].as_str()) && !is_package).then_some(at)
}

#[derive(Default)]
struct Reader {
    rest: Vec<char>,
    at: usize,
    line: usize,
    found: Vec<Simple>,
    command: Simple,
    word: Option<String>,
    /// The next word is the target of a redirection.
    target: bool,
    /// The next word ends a here-document.
    delimiter_next: bool,
    delimiters: Vec<String>,
}

impl Reader {
    fn peek(&self) -> Option<char> {
        self.rest.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += 1;
        self.line += usize::from(next == '\n');
        Some(next)
    }

    fn push(&mut self, letter: char) {
        self.word.get_or_insert_default().push(letter);
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        if std::mem::take(&mut self.delimiter_next) {
            self.delimiters.push(word);
        } else if !std::mem::take(&mut self.target) {
            if self.command.words.is_empty() {
                self.command.line = self.line;
            }
            self.command.words.push(word);
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        let command = std::mem::take(&mut self.command);
        if !command.words.is_empty() {
            self.found.push(command);
        }
    }

    fn read(&mut self) {
        while let Some(letter) = self.peek() {
            match letter {
                '\n' => {
                    self.end_command();
                    self.next();
                    self.skip_documents();
                }
                '#' if self.word.is_none() => self.skip_line(),
                '\\' => self.escaped(),
                '\'' => self.single_quoted(),
                '"' => self.double_quoted(),
                '$' if self.rest.get(self.at + 1) == Some(&'(') => self.substituted(),
                '<' | '>' => self.redirected(),
                ';' | '|' | '(' | ')' => {
                    self.end_command();
                    self.next();
                }
                '&' => self.ampersand(),
                letter if letter.is_whitespace() => {
                    self.end_word();
                    self.next();
                }
                letter => {
                    self.push(letter);
                    self.next();
                }
            }
        }
        self.end_command();
    }

    fn skip_line(&mut self) {
        while self.peek().is_some_and(|letter| letter != '\n') {
            self.next();
        }
    }

    fn skip_documents(&mut self) {
        for delimiter in std::mem::take(&mut self.delimiters) {
            while self.at < self.rest.len() {
                let start = self.at;
                self.skip_line();
                let line: String = self.rest[start..self.at].iter().collect();
                self.next();
                if line.trim() == delimiter {
                    break;
                }
            }
        }
    }

    fn escaped(&mut self) {
        self.next();
        match self.next() {
            Some('\n') | None => {}
            Some(letter) => self.push(letter),
        }
    }

    fn single_quoted(&mut self) {
        self.next();
        self.word.get_or_insert_default();
        while let Some(letter) = self.next().filter(|letter| *letter != '\'') {
            self.push(letter);
        }
    }

    fn double_quoted(&mut self) {
        self.next();
        self.word.get_or_insert_default();
        while let Some(letter) = self.peek().filter(|letter| *letter != '"') {
            match letter {
                '\\' => self.escaped(),
                '$' if self.rest.get(self.at + 1) == Some(&'(') => self.substituted(),
                letter => {
                    self.push(letter);
                    self.next();
                }
            }
        }
        self.next();
    }

    /// `$(..)` is part of a word, and its commands are commands of the script.
    fn substituted(&mut self) {
        let (start, line, mut depth) = (self.at, self.line, 0);
        while let Some(letter) = self.next() {
            depth += i32::from(letter == '(') - i32::from(letter == ')');
            if letter == ')' && depth == 0 {
                break;
            }
        }
        let text: String = self.rest[start..self.at].iter().collect();
        let inner = text.trim_start_matches("$(").strip_suffix(')').unwrap_or_default();
        for command in commands(inner) {
            self.found.push(Simple { line: command.line + line, words: command.words });
        }
        self.word.get_or_insert_default().push_str(&text);
    }

    fn redirected(&mut self) {
        if self.word.as_deref().is_some_and(|word| word.chars().all(|letter| letter.is_ascii_digit())) {
            self.word = None;
        }
        self.end_word();
        let start = self.at;
        while self.peek().is_some_and(|letter| "<>&-".contains(letter)) {
            self.next();
        }
        let operator: String = self.rest[start..self.at].iter().collect();
        match operator.as_str() {
            "<<" | "<<-" => self.delimiter_next = true,
            _ => self.target = true,
        }
    }

    /// `&>` redirects; any other `&` ends a command.
    fn ampersand(&mut self) {
        self.next();
        if self.peek() == Some('>') { self.redirected() } else { self.end_command() }
    }
}
