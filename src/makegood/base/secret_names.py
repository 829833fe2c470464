"""Which values people and logs do not get to see: one rule for pages, files, the API, commands, errors, logs.

A field is secret because of its name, which is read as words: ``userPIN``, ``user-pin`` and ``USER_PIN`` are
*user* and *pin*, and ``pinned`` is another word. What is only *about* a secret, such as ``token_type`` or
``password_changed_at``, is shown.

A text is searched for the forms in which secrets usually get into error messages: ``password=…``,
``Authorization: …``, a bearer token, a URL with a password, a command with ``--password …`` or
``mysql -p…``.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final

COVER: Final = "•••"
"""What people see instead."""

_LONGEST: Final = 200
"""Characters of a name that are examined."""
_MOST_WORDS: Final = 4
"""Words that together may be one of those below."""


_STROKES: Final = str.maketrans("łŁøØđĐı", "lLoOdDi")


def _plain(text: str) -> str:
    """Return a text without case, accents and invisible characters; full-width letters become usual ones."""
    apart = unicodedata.normalize("NFKD", text.translate(_STROKES))
    return unicodedata.normalize(
        "NFC", "".join(c for c in apart if unicodedata.category(c) not in ("Mn", "Cf"))
    ).casefold()


def _names_in(text: str) -> frozenset[str]:
    return frozenset(map(_plain, text.split()))


_KEYS: Final = "api private priv secret access signing encryption decryption ssh gpg pgp master account shared storage service auth symmetric session webhook deploy wrapping rsa aes hmac"
_CODES: Final = (
    "pin otp security verification auth sms login access card mfa onetime recovery backup activation"
)
_WORDS: Final = _names_in(
    "password passwords passwd pwd pw passphrase passcode passkey secret secrets token credential credentials cred creds "
    "authorization authorisation bearer cookie cookies jwt otp totp hotp dsn pin cvc cvv cvn iban bban ssn signature signatures sig "
    "clientassertion securityanswer sessionid sessionkey sessiontoken sessioncookie sessiondata sessid phpsessid authheader authstring authdata csrf xsrf "
    "cardno cardnr cardnum cardnumber cardpan ccnumber creditcard debitcard accountno accountnr accountnum accountnumber acctno "
    "acctnumber bankaccount connectionstring connstring connstr socialsecurity seedphrase recoveryphrase mnemonic "
    "passwort kennwort geheimnis geheimzahl kontonummer kartennummer contrasena clave senha motdepasse mdp wachtwoord parola passord "
    "adgangskode losenord salasana sifre jelszo heslo haslo пароль пинкод 密码 密碼 口令 パスワード 暗証番号 비밀번호 암호 סיסמה"
) | {word + end for word in _KEYS.split() for end in ("key", "keys")} | {word + end for word in _CODES.split() for end in ("code", "codes")}  # fmt: skip
"""Names, and parts of names, of secrets. Several words of a name may make one of these."""
_INSIDE: Final = re.compile("|".join(map(re.escape, sorted(_names_in(
    "password passwd passwort kennwort passphrase credential authorization authorisation apikey privatekey secretkey accesskey "
    "cardnumber accountnumber accesstoken refreshtoken sessionid sessid motdepasse contrasena wachtwoord пароль 密码 密碼 パスワード 비밀번호"
)))) + r"|(?:secret|token|pwd|jwt|dsn)$")  # fmt: skip
"""What makes a name secret even where nothing separates its words, as in ``dbpassword``."""
_WHOLE: Final = _names_in("auth authz oauth card pan pass session sid")
"""Names of secrets on their own, which are harmless as a part of most names."""
_LAST: Final = _names_in("auth oauth pass session")
"""Those that are secret as the last word, too."""
_PASSES: Final = _names_in("boarding season travel ski day bus train")
"""Before *pass*: something else."""
_ABOUT: Final = _names_in(
    "type types kind count counts counter limit limits length len size url uri endpoint host domain policy rule rules required enabled "
    "disabled allowed valid verified present accepted consent confirmed changed expired revoked expiry expires expiration ttl at age date "
    "time method provider issuer status algorithm alg format name names version price amount balance usage budget file path field label "
    "placeholder min max attempts retries"
)
"""Last words of names that are about a secret."""
_COUNTED: Final = _names_in("max min total num number count limit prompt completion input output used per cached reasoning n remaining budget new")  # fmt: skip
"""Before *tokens*: an amount."""

_APART: Final = re.compile(r"[\W_]+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def is_secret(name: str) -> bool:
    """Return whether the values under a name are secret.

    >>> [name for name in ("X-API-Key", "userPIN", "pinned", "author", "max_tokens") if is_secret(name)]
    ['X-API-Key', 'userPIN']
    """
    return _is_secret(name[:_LONGEST])


@lru_cache(maxsize=4096)
def last_word(name: str) -> str:
    """Return the last word of a name, "" for none.

    >>> last_word("headerValue"), last_word("@name")
    ('value', 'name')
    """
    _, words = _read(name[:_LONGEST])
    return words[-1] if words else ""


def _read(name: str) -> tuple[list[str], list[str]]:
    """Return the parts of a name that something separates, and its words, plain and without numbers."""
    name = "".join(c for c in name if unicodedata.category(c) != "Cf")
    parts = [part for part in _APART.split(name) if part]
    return parts, [_plain(word).rstrip("0123456789") or word for part in parts for word in _HUMP.split(part)]


@lru_cache(maxsize=4096)
def _is_secret(name: str) -> bool:
    parts, words = _read(name)
    if not words or (len(words) > 1 and words[-1] in _ABOUT):
        return False
    if words[-1] == "tokens":
        return len(words) == 1 or words[-2] not in _COUNTED
    if "".join(words) in _WHOLE or (words[-1] in _LAST and words[-2] not in _PASSES):
        return True
    runs = (words[at : at + n] for at in range(len(words)) for n in range(1, _MOST_WORDS + 1))
    return any("".join(run) in _WORDS for run in runs) or any(
        _INSIDE.search(_plain(part).rstrip("0123456789")) for part in parts
    )


_IN_URL: Final = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{0,30}://[^\s/?#:@\"'<>]*:)[^\s/?#\"'<>]+@")
_BEARER: Final = re.compile(r"(?i)\b(bearer\s+)(?=[\w.~+/=-]*[\d._~+/=-])[\w.~+/=-]{8,}")
_NAMED: Final = re.compile(r"""([\w.-]{1,60})(?:\\?["'])?\s?([=:])\s?""")
_VALUE: Final = re.compile(
    r"""(?:[bru]{1,2}|\w{1,40}\()?(?P<quote>\\?["'])(?P<quoted>(?:(?!(?P=quote)).)+)|"""
    r"""(?P<bare>(?:digest|aws4-[\w-]+)\s+[^\n()]+|(?:(?:basic|bearer|token)\s+)?"""
    r"""(?:\\[ ,;]|[^\s,;&"'<>(){}\[\]])+(?:[,;](?=[^\s,;&"'<>(){}\[\]=:]+(?:[\s,;&"']|$))[^\s,;&"'<>(){}\[\]]+)*)""",
    re.IGNORECASE,
)
_PAIR: Final = re.compile(r"""([(\[]\s*b?(["'])([\w.-]{1,60})\2,\s*b?(["']))((?:(?!\4).)+)(?=\4\s*[)\]])""")
"""A name and its value as Python prints a header: ``('Authorization', 'Basic bWU6eA==')``."""
_HEADERS: Final = ("authorization", "cookie", "key")
_BETWEEN: Final = r"""(?:\s+["']?|["'],\s*["'])"""
"""What is between two arguments of a command, as a shell takes them and as Python prints a list of them."""
_FLAG: Final = re.compile(
    r"""(?<![\w-])(--(\w[\w-]{0,59})(\s+|["'],\s*))(?:(["'])((?:(?!\4).)+)\4|(?!-)([^\s"'`;()\[\]]+))"""
)
_PROGRAMS: Final = ("mysql", "mariadb", "sshpass", "docker", "redis-cli", "curl")
_SHORT_FLAG: Final = re.compile(
    rf"""\b(?:(?:mysql|mariadb)[\w-]{{0,20}}{_BETWEEN}(?:[^\n]{{0,120}}?{_BETWEEN})?-p|"""
    rf"""(?:sshpass|docker{_BETWEEN}login){_BETWEEN}(?:[^\n]{{0,120}}?{_BETWEEN})?-p(?:{_BETWEEN})?|"""
    rf"""redis-cli{_BETWEEN}(?:[^\n]{{0,120}}?{_BETWEEN})?-a{_BETWEEN}|"""
    rf"""curl{_BETWEEN}(?:[^\n]{{0,120}}?{_BETWEEN})?(?:-u|--user)(?:{_BETWEEN}|=)?[^\s:"']+:)([^\s"']+)"""
)
"""Flags of these programs whose value is a password."""
_PROSE: Final = _names_in(
    "a an and are as at be by can cannot did does expected expects expired fails failed flag flags for from given had has have if in "
    "instead invalid is it may missing must needed needs no not of on once only option or parameter please required requires set "
    "should takes than that the then to twice unless until used value was were when which will with without wrong"
)
"""Words that follow the name of a flag in a sentence."""


def without_secrets(text: str) -> str:
    """Return a text, such as an error's, without the secrets that it shows in one of the usual forms.

    >>> without_secrets("401 at https://me:hunter2@api.example (Authorization: Basic bWU6eA==), pin=4711")
    '401 at https://me:•••@api.example (Authorization: •••), pin=•••'
    """
    if "--" in text:
        text = _FLAG.sub(_without_value, text)
    if "-" in text and any(map(text.__contains__, _PROGRAMS)):
        text = _SHORT_FLAG.sub(lambda flag: flag[0][: flag.start(1) - flag.start()] + COVER, text)
    if "," in text:
        text = _PAIR.sub(lambda pair: pair[1] + (COVER if is_secret(pair[3]) else pair[5]), text)
    if "=" not in text and ":" not in text and "earer" not in text and "EARER" not in text:
        return text
    text = _BEARER.sub(rf"\1{COVER}", _IN_URL.sub(rf"\1{COVER}@", text))
    result, at = "", 0
    for match in _NAMED.finditer(text):
        if match.start() < at or not is_secret(match[1]) or not (value := _VALUE.match(text, match.end())):
            continue
        part = "quoted" if value["quote"] else "bare"
        if not _is_prose(match[1], match[2], value["bare"] or ""):
            result += text[at : value.start(part)] + COVER
            at = value.end(part) if part == "quoted" else _end(text, match.start(), value.end(part))
    return result + text[at:]


def _end(text: str, start: int, end: int) -> int:
    """Return where a value ends whose name follows a quotation mark, as in ``'--password=two words'``: at the
    other mark, unless another name is before that.
    """
    if start and (mark := text[start - 1]) in "\"'" and text[end : end + 1] in (" ", ",", ";"):
        close = text.find(mark, end, end + _LONGEST)
        if close > 0 and not re.search(r"[=:\n]", text[end:close]):
            return close
    return end


def _without_value(flag: re.Match[str]) -> str:
    """Return a flag of a command without its value if that is secret.

    A value of letters alone may be a word of a sentence: it is one unless it is quoted, or the command
    continues with a flag, or ends.
    """
    before, name, _, quote, in_quotes, bare = flag.groups()
    if not is_secret(name) or COVER in flag[0]:
        return flag[0]
    if in_quotes:
        return f"{before}{quote}{COVER}{quote}"
    rest = flag.string[flag.end() : flag.end() + 3]
    alone = not rest.strip() or rest.startswith(("\n", "'", '"', "`", " -"))
    word = bare.rstrip(",.:!?")
    prose = word.isalpha() and (_plain(word) in _PROSE or not alone)
    return flag[0] if prose else before + COVER


def _is_prose(name: str, sign: str, value: str) -> bool:
    """Whether it is a sentence, such as "password: must have...", a URL's scheme, or covered already."""
    is_sentence = sign == ":" and value.isalpha() and not name.lower().endswith(_HEADERS)
    return is_sentence or value.startswith((COVER, "//"))
