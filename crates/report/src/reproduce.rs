//! A command line, quoted so that a POSIX shell reads it back word by word.

use std::borrow::Cow;

/// The word as a shell needs it: unchanged if it holds nothing special, else in single quotes.
pub fn shell_quote(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c) || !c.is_ascii();
    if !word.is_empty() && word.chars().all(plain) {
        Cow::Borrowed(word)
    } else {
        Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
    }
}

/// `reproduce: allranks run -n 4 ... train.py`.
pub fn render<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let mut line = String::from("reproduce:");
    for word in words {
        line.push(' ');
        line.push_str(&shell_quote(word));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_what_a_shell_would_take_apart() {
        let line = render(["allranks", "run", "-n", "4", "my train.py", "--name", "it's", "", "a*b", "x=1"]);
        assert_eq!(line, r"reproduce: allranks run -n 4 'my train.py' --name 'it'\''s' '' 'a*b' x=1");
    }
}
