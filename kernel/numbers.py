"""What values of kernel files are made of: numbers, limits, pairs of words. Pure.

A Form is a value taken apart: (device, numbers). `device` is "" but for files with a line a device; numbers
are integers, UNLIMITED for "max", UNSAID where a device's line does not name a key.
"""

Form = tuple[str, tuple[int, ...]]

UNLIMITED = 1 << 64
"""Higher than what any file can hold."""
UNSAID = -1 << 64


def integer(text: str) -> int:
    """A number in its shortest form, or ValueError."""
    digits = text[1:] if text[:1] == "-" else text
    if not digits.isascii() or not digits.isdigit() or len(digits) > 20:
        raise ValueError("not an integer")
    if digits[0] == "0" and text != "0":
        raise ValueError("not an integer in its shortest form")
    return int(text)


def within(number: int, low: int, high: int) -> int:
    """The number, or ValueError."""
    if not low <= number <= high:
        raise ValueError("not in " + str(low) + " to " + str(high))
    return number


def limit(text: str, low: int, high: int) -> int:
    """A number or "max", or ValueError."""
    return UNLIMITED if text == "max" else within(integer(text), low, high)


def limit_text(number: int) -> str:
    """A limit as it is written."""
    return "max" if number == UNLIMITED else str(number)


def two(text: str, separator: str) -> "tuple[str, str]":
    """Both sides of the separator, neither empty, or ValueError."""
    left, _, right = text.partition(separator)
    if not left or not right:
        raise ValueError("not two words with " + repr(separator) + " between them")
    return left, right
