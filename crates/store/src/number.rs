//! Numbers in values, read as C++ `std::stoll` reads them.

/// Why a value is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotANumber {
    /// It does not begin with one.
    Invalid,
    /// It does not fit into 64 bits.
    OutOfRange,
}

/// The number at the start of `text`: white space, a sign and digits; what follows is ignored.
pub(crate) fn leading_number(text: &[u8]) -> Result<i64, NotANumber> {
    let blank = |b: &&u8| matches!(b, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c);
    let text = &text[text.iter().take_while(blank).count()..];
    let (negative, digits) = match text.first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let digits = &digits[..digits.iter().take_while(|b| b.is_ascii_digit()).count()];
    if digits.is_empty() {
        return Err(NotANumber::Invalid);
    }
    let step = |sum: i64, digit: &u8| {
        let digit = i64::from(digit - b'0');
        sum.checked_mul(10)?.checked_add(if negative { -digit } else { digit })
    };
    digits.iter().try_fold(0, step).ok_or(NotANumber::OutOfRange)
}

#[cfg(test)]
mod tests {
    use super::{NotANumber, leading_number};

    #[test]
    fn as_stoll() {
        let cases: [(&str, Result<i64, NotANumber>); 11] = [
            ("12", Ok(12)),
            (" \t\n12abc", Ok(12)),
            ("+7", Ok(7)),
            ("-7", Ok(-7)),
            ("0x10", Ok(0)),
            ("-9223372036854775808", Ok(i64::MIN)),
            ("9223372036854775807", Ok(i64::MAX)),
            ("9223372036854775808", Err(NotANumber::OutOfRange)),
            ("", Err(NotANumber::Invalid)),
            ("-", Err(NotANumber::Invalid)),
            ("abc", Err(NotANumber::Invalid)),
        ];
        for (text, want) in cases {
            assert_eq!(leading_number(text.as_bytes()), want, "{text:?}");
        }
    }
}
