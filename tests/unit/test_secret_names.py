"""Which names are secret, which are not, and what is left of a text that shows a secret."""

import pytest

from makegood.base.secret_names import COVER, is_secret, without_secrets

SECRET = """
password Password PASSWORD passwd pwd userPwd user-pwd db_password dbpassword DBPassword password2 new_password Pass_Word passphrase
passcode pass db_pass smtpPass secret secrets client_secret clientSecret clientsecret token tokens access_token accessToken accesstoken refreshToken id_token
api_key api-key apiKey apikey APIKEY X-API-Key x_api_key api_keys access_key AWS_SECRET_ACCESS_KEY private_key private-key privateKey PRIVATEKEY
signing_key encryptionKey ssh_key authorization Authorization proxy-authorization auth basic_auth oauth credential credentials creds
cookie Set-Cookie cookies session session_id sessionId PHPSESSID user_session bearer jwt JWT dsn sentry_dsn otp otpCode one_time_code
one-time-password totp pin PIN userPin userPIN user_pin pin_code pinCode PINCode pincode security_code securityCode verification_code card card_number card-number cardNumber
cardNo pan cvc cvv CVV2 iban IBAN account_number accountNumber account_no bank_account credit_card ssn social_security_number signature sig
connection_string connectionString connStr csrf xsrf_token mfa_code recovery_codes seed_phrase webhook_secret
Passwort kennwort contraseña contrasena senha mot_de_passe motDePasse mdp wachtwoord lösenord salasana heslo hasło пароль парольБазы 密码 パスワード
비밀번호 order.password user[password] \u200bpassword pass\u200bword password_hash pAsSwOrD
"""
SHOWN = """
pinned isPinned spinner pin_length pinterest author authors author_id authored_by authority authenticated authorized_by authorized_amount shipping shipping_address tokenizer tokenized
max_tokens total_tokens completionTokens token_type token_count token_limit token_expires_at token_url passenger passengers passport compass bypass passed boarding_pass season_pass
password_changed_at passwordPolicy secretary undersecretary secret_name key keys key_id primary_key foreignKey idempotency_key public_key sort_key monkey keyboard turkey
session_count sessions session_title training_sessions cookie_policy cookies_accepted cookiecutter signature_algorithm design signal assigned designer businessName business_name
card_type cards cardinality discard postcard cardigan company span japan expand panel pancake account account_id accounting option adopted optional
postcode zip_code country_code error_code promo_code status_code code order sku cents hold customer email name address currency caliban ski_pass
description basin dsnap adsense opinion happiness shopping mapping hopping happen pinecone credit accredited creditor tan
signed_at Versand autor autorizado paso clavel enclave secretion tokenizer_version api_key_name auth_method auth_type
"""


@pytest.mark.parametrize(
    "name",
    [
        *SECRET.split(),
        "Pass Word",
        "mot de passe",
        "Social Security Number",
        "\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44",
    ],
)
def test_secret_names_are_known(name: str) -> None:
    """However their words are joined, and in several languages."""
    assert is_secret(name)


@pytest.mark.parametrize("name", [*SHOWN.split(), "", "_", "…", "x" * 10_000])
def test_other_names_are_not_secret(name: str) -> None:
    """Neither a word that holds a secret one, nor what is about a secret."""
    assert not is_secret(name)


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2!", "PASSWORD = hunter2!", "failed: {'password': 'hunter2!'}", '{"api_key": "hunter2!"}', '{\\"apiKey\\":\\"hunter2!\\"}',
        "Authorization: Bearer hunter2!", "authorization: Basic hunter2!", "sent Bearer aGh1bnRlcjI.hunter2! to it"[:-7] + "hunter2",
        "Cookie: sid=hunter2!", "X-Api-Key: hunter2!", "https://me:hunter2!@api.example/x", "postgresql://me:hunter2!@db/shop",
        "amqp://:hunter2!@mq:5672", "GET https://api.example/x?a=1&token=hunter2!&b=2", "cannot log in with pin: 4711hunter2!",
        "mysql --password hunter2 -h db", "Command '['app', '--password', 'hunter2']' returned non-zero exit status 1.",
        "app --token hunter2", "app --token 'hunter2' now", "app --secret-key 'a hunter2' x",
        "['app', '--password', 'a, hunter2', 'x']", "app --password a,hunter2 x", "curl -u me:a,hunter2 https://api.example", "app --pwd hunter2.",
        "mysql -u root -phunter2 shop", "Command '['mysqldump', '-u', 'root', '-phunter2', 'shop']' failed", "mariadb-dump -phunter2",
        "sshpass -p hunter2 ssh db", "sshpass -phunter2 ssh db", "redis-cli -h db -a hunter2 ping", "curl -sS -u me:hunter2 https://api.example",
        "['curl', '--user', 'me:hunter2']", "docker login -u me -p hunter2", "password=a,hunter2", "Server=db;Password=a;hunter2;Database=x",
        "password=a\\ hunter2", "Command '['app', '--password=a hunter2']' failed", "env: ['PGPASSWORD=a, hunter2', 'LANG=C']", "tokens=a,hunter2,c",
        "two: password=hunter2!, secret='hunter2!'", "redis://:hun@ter2:hunter2!@h/0", "jwt = eyJhbGci.hunter2!",
    ],
)  # fmt: skip
def test_a_text_shows_no_secret(text: str) -> None:
    """In the forms in which secrets get into errors; and what is covered stays as it is."""
    output = without_secrets(text)
    assert "hunter2" not in output
    assert COVER in output
    assert without_secrets(output) == output


@pytest.mark.parametrize(
    "text",
    [
        "the card of o-1 has expired", "KeyError: 'password'", "password: must have 12 characters", "token: expired", "no such file: /etc/x=1",
        "https://api.example:8443/x?author=ann", "author=ann, pinned=true, shipping: express", "http://[::1]:80/@x", "bearer of bad news",
        "Expected `int`, got `str` - at `$.card.number`", "12:30:01 order=7", "a=b", "", "max_tokens=100", "basic information: none",
        "option --password is missing", "pass --token instead of --user", "--password: must be given", "the --api-key option must be set",
        "Option '--password' requires an argument", "unknown option --token value", "--tokens-per-minute 100", "mysql is down - please wait",
        "mysql -P 3306 -h db", "curl -u is deprecated", "docker run -p 8080:80 web", "redis-cli is not installed", "use --password or --secret",
        "a,b;c", "--key-file /etc/x.pem", "give --password once", "author=ann,bob", "see --help --verbose", "the flag --token expired",
        "mailto:ann@example.com", "charge: PermissionError: [Errno 13]", "http://h:80/x?mail=a@b",
    ],
)  # fmt: skip
def test_other_texts_stay_as_they_are(text: str) -> None:
    """Nothing is lost of an error that shows no secret."""
    assert without_secrets(text) == text


def test_a_long_text_takes_time_in_proportion() -> None:
    """A megabyte of what almost is a pair is read once."""
    for piece in (
        "password",
        "a:",
        "='",
        "://a:",
        "bearer ",
        'x="',
        "pin: ",
        "--token ",
        "mysql ",
        "mysql -",
        "curl -u",
        "'password=a ",
        "pin=a,",
        "password=a;b",
    ):
        text = piece * (200_000 // len(piece))
        assert isinstance(without_secrets(text), str)
