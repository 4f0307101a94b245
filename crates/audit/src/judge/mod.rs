//! Rules: from what was observed to what is wrong.
