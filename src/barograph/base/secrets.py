"""What is a secret: the keys under which a value is one, as lists of words, and the forms of values that are one under
any key, one rule per provider with its source.

The last word of a key decides: ``db_password`` is one, ``password_file`` is none. Words that are also used for
harmless things (``token``, ``key``, ``pass``, ``auth``) are decided by the word before them, and by the value.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

MAX_KEY = 200  # characters at the end of a key that are looked at

SECRET_ENDINGS = frozenset(
    "password passwd passphrase passcode secret credential cred authorization cookie jwt webhook mnemonic "  # noqa: SIM905
    "api_key apikey secret_key private_key access_key access_key_id accesskeyid secret_id login_kwargs webhook_url "
    "seed_phrase recovery_code".split()
)
"""Ends of keys that are secrets with any value. Their plurals are, too."""

GLUED_ENDINGS = (
    "apikey", "password", "passwd", "passphrase", "apitoken", "authtoken", "accesstoken", "hftoken", "secretkey",
    "accesskey", "privatekey", "clientsecret",
)  # fmt: skip
"""Ends of keys that are written without a separator: ``wandbapikey``."""

HARMLESS_TOKENS = frozenset(
    "eos bos pad unk sep cls mask eot eom stop start end begin first last next prev prompt response image video audio "  # noqa: SIM905
    "vision think tool special per each every by max min num single new extra boundary separator delimiter newline "
    "placeholder control im sot context user assistant system answer query sample valid n total input output generated "
    "completion batch vocab added bad good yes no suppress forced ignore".split()
)
"""Words before ``token`` with which it is a token of text, not a credential."""

CREDENTIAL_KEYS = frozenset(
    "account app aes auth client consumer deploy encryption decryption hmac license master rsa service shared signing "  # noqa: SIM905
    "signature ssh storage subscription webhook admin session aws azure gcp google openai anthropic deepseek wandb "
    "swanlab mlflow comet neptune hf huggingface openrouter dashscope zhipu moonshot serper tavily bing github gitlab "
    "minio oss cos tos qwen gemini cohere groq together nvidia e2b modal runpod lambda langfuse langsmith".split()
)
"""Words before ``key`` with which it is a credential with any text as value."""

HARMLESS_KEYS = frozenset(
    "sort primary foreign cache public partition hash lookup index group unique composite natural surrogate "  # noqa: SIM905
    "input output prompt response answer question label target reward metric data dataset dict state text image video "
    "audio column field query value attn attention batch sample feature obs observation action info step log loss "
    "score id name json yaml env tensor weight message content role user system assistant solution truth reference "
    "source num n max min total all missing unexpected extra required ignore ignored skip exclude include kv lora "
    "module layer head per by from to map mapping config model param parameter meta metadata tool function task domain "
    "fn raw object bucket s3 monitor train val eval test rollout actor critic policy ref hot short tag filter".split()
)
"""Words before ``key`` with which it is a name in a table, not a credential."""

HARMLESS_PASSES = frozenset(
    "forward backward first second third single multi one two num per final low high band all by fusion n max min "  # noqa: SIM905
    "compile optimizer inductor".split()
)
"""Words before ``pass`` with which it is a pass over data."""

AUTH_SCHEMES = frozenset(
    "none no off on basic bearer digest oauth oauth2 jwt kerberos ldap token default required optional true false "  # noqa: SIM905
    "anonymous disabled enabled auto saml sso iam munge negotiate".split()
)
"""Values of ``auth`` that name a method."""

SUFFIX = re.compile(r"_(?:\d+|value|str|string|b64|base64|raw|plain)$")


def is_secret_key(key: str, value: Any = "") -> bool:
    """Return whether the value under this key is a secret. Only the last 200 characters of the key are looked at."""
    if isinstance(value, bool):
        return False
    words = split_words(key)
    stem = SUFFIX.sub("", words)
    if _has_ending(stem) or _has_ending(_singular(stem)):
        return True
    before, _, last = stem.rpartition("_")
    word_before = before.rpartition("_")[2]
    if last in ("token", "tokens"):
        if stem != words and not words[-1].isdigit():
            return False  # token_str, token_value: text
        return word_before not in HARMLESS_TOKENS and not is_plain_token(value, plural=last == "tokens")
    if re.fullmatch(r"keys?\d*", last):
        return _is_secret_under_key(word_before, value)
    return _is_secret_word(last, word_before, value)


@functools.lru_cache(maxsize=4096)
def may_be_secret(key: str) -> bool:
    """Return whether any text under this key would be a secret; quick, as it does not look at the text."""
    return is_secret_key(key, "Zk3vQ9xT7mB2nR5wY8pL")


def split_words(key: str) -> str:
    """Return a key in lower case with its words joined by underscores: ``apiKeys`` is ``api_keys``."""
    return _split_words(key[-MAX_KEY:])


@functools.lru_cache(maxsize=4096)
def _split_words(key: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", key)
    return re.sub(r"[^A-Za-z0-9]+", "_", words).strip("_").lower()


def is_plain_token(value: Any, plural: bool = False) -> bool:
    """Return whether a value is a number, a switch, a marker like ``<image>`` or a count, and no credential."""
    if isinstance(value, list | tuple):
        return all(is_plain_token(inner, plural=True) for inner in value)
    if not isinstance(value, str):
        return value is None or isinstance(value, bool | int | float)
    if plural and re.fullmatch(r"[A-Za-z]{1,12}|[\d.,_]{1,20}[kKmMbBtT]?|[^A-Za-z0-9]{1,12}", value):
        return True
    return not value.strip() or (value[0] in "<[{|" and value[-1] in ">]}|")


def looks_random(value: Any) -> bool:
    """Return whether a text looks generated: one word of letters and digits with a high entropy.

    The limit of 3 bits per character is the one of detect-secrets for hexadecimal texts; gitleaks takes 3.5 for any.
    """
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9+/=_.~:-]{12,1000}", value):
        return False
    runs = re.findall(r"[A-Za-z0-9]{10,}", value)
    mixed = [run for run in runs if len(re.findall(r"[A-Za-z](?=\d)|\d(?=[A-Za-z])", run)) >= 3]
    counts = Counter(value)
    entropy = -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())
    return bool(mixed) and entropy >= 3.0


def _has_ending(words: str) -> bool:
    parts = words.split("_")
    ends = ("_".join(parts[-count:]) for count in (1, 2, 3))
    return any(end in SECRET_ENDINGS for end in ends) or words.endswith(GLUED_ENDINGS)


def _singular(words: str) -> str:
    return words if words.endswith("ss") else words.removesuffix("s")


def _is_secret_under_key(word_before: str, value: Any) -> bool:
    """Return whether ``key``, or ``…_key``, has a credential as its value."""
    if word_before in HARMLESS_KEYS:
        return False
    texts = value if isinstance(value, list | tuple) else [value]
    if word_before in CREDENTIAL_KEYS:
        return not all(inner is None or isinstance(inner, bool | int | float) for inner in texts)
    return any(looks_random(inner) for inner in texts)


def _is_secret_word(last: str, word_before: str, value: Any) -> bool:
    """Decide about words that are short, and common in harmless keys."""
    if last == "pwd":  # PWD is also the working directory
        return value is not None and not str(value).startswith(("/", "~"))
    if value is None or isinstance(value, int | float):
        return False
    if last == "pass":
        return word_before not in HARMLESS_PASSES
    if last == "auth":
        return not isinstance(value, str) or value.lower() not in AUTH_SCHEMES
    if last in ("ak", "sk", "pat", "pw"):
        return looks_random(value) or (last == "pw" and isinstance(value, str))
    return False


def is_named_secret(data: Mapping[Any, Any]) -> bool:
    """Return whether a mapping is a pair such as ``{name: WANDB_API_KEY, value: …}``, as Kubernetes has it."""
    name = data.get("name", data.get("key"))
    return isinstance(name, str) and "value" in data and is_secret_key(name, data["value"])


GITLEAKS = "gitleaks 8.30 config/gitleaks.toml: "

ADDRESS = "the address under which the provider takes messages; the path or query is the credential"

SCANNERS = "the form that public secret scanners search for; the provider publishes no specification"

START = r"(?:(?<![A-Za-z0-9])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrt]))"  # also after an escape of a URL or of repr()

URL_REST = r"[^\s\"'<>\\]+"


class RedactionRule(NamedTuple):
    """Form of one kind of secret."""

    name: str
    words: tuple[str, ...]  # lower case; one of them is in every match
    pattern: str
    source: str


def _address(name: str, words: tuple[str, ...], kept: str, source: str = ADDRESS) -> RedactionRule:
    """Return the rule for an address whose last part is a secret."""
    return RedactionRule(name, words, kept + URL_REST, source)


RULES = (
    RedactionRule(
        "private key",
        ("private key",),
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[\s\S]*?-----END [A-Z0-9 ]{0,60}-----|[\s\S]*)",
        "RFC 7468 section 10; RFC 4880 section 6.2; OpenSSH PROTOCOL.key",
    ),
    RedactionRule(
        "HTTP authorization", ("bearer",), START + r"(?i:bearer)\s{1,5}[A-Za-z0-9._~+/=-]{8,}", "RFC 6750 section 2.1"
    ),
    RedactionRule(
        "HTTP basic authorization",
        ("basic",),
        START + r"(?i:basic)\s{1,5}(?=[A-Za-z+/]{0,400}[0-9=])[A-Za-z0-9+/]{8,}={0,2}",
        "RFC 7617 section 2",
    ),
    RedactionRule("JSON web token", ("eyj",), START + r"eyJ[\w-]{8,400}\.[\w-]{8}[\w.-]{8,}", "RFC 7519 section 3"),
    RedactionRule(
        "sk-: OpenAI, Anthropic, DeepSeek, OpenRouter",
        ("sk-",),
        START + r"sk-[\w-]{16,}",
        GITLEAKS + "openai-api-key, anthropic-api-key",
    ),
    RedactionRule(
        "Hugging Face",
        ("hf_", "api_org_"),
        START + r"(?:hf|api_org)_[A-Za-z0-9]{16,}",
        GITLEAKS + "huggingface-access-token",
    ),
    RedactionRule(
        "GitHub",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
        START + r"gh[pousr]_[A-Za-z0-9]{16,}",
        GITLEAKS + "github-pat, github-oauth, github-app-token",
    ),
    RedactionRule(
        "GitHub, fine-grained", ("github_pat_",), START + r"github_pat_\w{20,}", GITLEAKS + "github-fine-grained-pat"
    ),
    RedactionRule(
        "GitLab",
        ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-", "gloas-", "glagent-", "glimt-"),
        START + r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|oas|agent|imt)-[\w-]{16,}(?:\.[\w.-]+)?",
        GITLEAKS + "gitlab-*",
    ),
    RedactionRule(
        "Slack", ("xox", "xapp-"), START + r"(?:xox[a-z](?:\.xox[a-z])?|xapp)-[A-Za-z0-9-]{10,}", GITLEAKS + "slack-*"
    ),
    RedactionRule(
        "AWS access key id, with its secret beside it",
        ("akia", "asia", "abia", "acca"),
        START + r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}"
        r"(?:[\s,:;|/\"']{1,5}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+]))?",
        GITLEAKS + "aws-access-token",
    ),
    RedactionRule(
        "AWS Bedrock",
        ("absk", "bedrock-api-key-"),
        START + r"(?:ABSK|bedrock-api-key-)[A-Za-z0-9+/=]{40,}",
        GITLEAKS + "aws-amazon-bedrock-api-key-*",
    ),
    RedactionRule("Google API", ("aiza",), START + r"AIza[\w-]{30,}", GITLEAKS + "gcp-api-key"),
    RedactionRule("Google OAuth", ("ya29.", "gocspx-"), START + r"(?:ya29\.|GOCSPX-)[\w-]{20,}", SCANNERS),
    RedactionRule(
        "Alibaba Cloud access key id", ("ltai",), START + r"LTAI[A-Za-z0-9]{12,}", GITLEAKS + "alibaba-access-key-id"
    ),
    RedactionRule("Tencent Cloud secret id", ("akid",), START + r"AKID[A-Za-z0-9]{32,}", SCANNERS),
    RedactionRule("Volcengine access key id", ("aklt",), START + r"AKLT[A-Za-z0-9_=-]{20,}", SCANNERS),
    RedactionRule(
        "Azure AD client secret",
        ("q~",),
        r"(?<![\w~.-])[\w~.]{3}\dQ~[\w~.-]{31,40}",
        GITLEAKS + "azure-ad-client-secret",
    ),
    RedactionRule("Groq", ("gsk_",), START + r"gsk_[A-Za-z0-9]{20,}", "trufflehog pkg/detectors/groq"),
    RedactionRule("NVIDIA", ("nvapi-",), START + r"nvapi-[\w-]{20,}", "trufflehog pkg/detectors/nvapi"),
    RedactionRule("xAI", ("xai-",), START + r"xai-[A-Za-z0-9]{20,}", "trufflehog pkg/detectors/xai"),
    RedactionRule("Replicate", ("r8_",), START + r"r8_[A-Za-z0-9]{20,}", "trufflehog pkg/detectors/replicate"),
    RedactionRule(
        "Perplexity",
        ("pplx-",),
        START + r"pplx-(?=[A-Za-z]{0,60}[0-9])[A-Za-z0-9]{20,}",
        GITLEAKS + "perplexity-api-key",
    ),
    RedactionRule("Fireworks", ("fw_",), START + r"fw_[A-Za-z0-9]{20,}", SCANNERS),
    RedactionRule("Together", ("tgp_v1_",), START + r"tgp_v1_[\w-]{20,}", SCANNERS),
    RedactionRule("LangSmith", ("lsv2_",), START + r"lsv2_(?:pt|sk)_\w{20,}", "trufflehog pkg/detectors/langsmith"),
    RedactionRule("W&B", ("wandb_v1_", "local-"), START + r"(?:wandb_v1_\w{20,}|local-[0-9a-f]{40})", SCANNERS),
    RedactionRule("npm", ("npm_",), START + r"npm_[A-Za-z0-9]{30,}", GITLEAKS + "npm-access-token"),
    RedactionRule("PyPI", ("pypi-",), START + r"pypi-[\w-]{40,}", GITLEAKS + "pypi-upload-token"),
    RedactionRule("Databricks", ("dapi",), START + r"dapi[a-f0-9]{32}(?:-\d)?", GITLEAKS + "databricks-api-token"),
    RedactionRule(
        "Stripe",
        ("_live_", "_test_", "_prod_", "whsec_"),
        START + r"(?:(?:sk|rk|pk)_(?:test|live|prod)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{20,})",
        GITLEAKS + "stripe-access-token",
    ),
    RedactionRule("SendGrid", ("sg.",), START + r"SG\.[\w-]{16,40}\.[\w-]{20,}", GITLEAKS + "sendgrid-api-token"),
    RedactionRule("Telegram bot", (":aa",), r"(?<!\d)\d{8,10}:AA[\w-]{30,}", GITLEAKS + "telegram-bot-api-token"),
    RedactionRule(
        "Discord bot",
        (".",),
        r"(?<![\w.-])[MNO][A-Za-z0-9_-]{23,27}\.[\w-]{6}\.[\w-]{27,40}(?![\w-])",
        "detect-secrets plugins/discord.py",
    ),
    RedactionRule("DigitalOcean", ("_v1_",), START + r"do[opr]_v1_[a-f0-9]{40,}", GITLEAKS + "digitalocean-pat"),
    RedactionRule("Grafana", ("glsa_", "glc_"), START + r"gl(?:sa|c)_[A-Za-z0-9_+/=]{30,}", GITLEAKS + "grafana-*"),
    RedactionRule("HashiCorp Vault", ("hvs.", "hvb."), START + r"hv[sb]\.[\w-]{20,}", GITLEAKS + "vault-service-token"),
    RedactionRule(
        "Shopify", ("shp",), START + r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}", GITLEAKS + "shopify-access-token"
    ),
    RedactionRule(
        "Notion, Linear", ("ntn_", "lin_api_"), START + r"(?:ntn|lin_api)_[A-Za-z0-9]{30,}", GITLEAKS + "notion, linear"
    ),
    RedactionRule("Sentry", ("sntry",), START + r"sntry[su]_[A-Za-z0-9+/=_]{30,}", GITLEAKS + "sentry-*"),
    RedactionRule(
        "Pulumi, Prefect, RubyGems",
        ("pul-", "pnu_", "rubygems_"),
        START + r"(?:pul-[a-f0-9]{40}|pnu_[A-Za-z0-9]{30,}|rubygems_[a-f0-9]{40,})",
        GITLEAKS + "pulumi, prefect, rubygems",
    ),
    RedactionRule(
        "Doppler, Docker, Postman",
        ("dp.", "dckr_pat_", "pmak-"),
        START + r"(?:dp\.(?:pt|st|ct)\.[\w.-]{30,}|dckr_pat_[\w-]{20,}|PMAK-[A-Za-z0-9-]{40,})",
        GITLEAKS + "doppler-api-token, postman-api-token; Docker: " + SCANNERS,
    ),
    RedactionRule("age", ("age-secret-key-",), START + r"AGE-SECRET-KEY-1[A-Z0-9]{50,}", GITLEAKS + "age-secret-key"),
    _address(
        "webhook of Slack",
        ("hooks.slack.com/",),
        r"(?P<keep>hooks\.slack\.com/)(?:services|workflows|triggers)/",
        GITLEAKS + "slack-webhook-url",
    ),
    _address("webhook of Feishu and Lark", ("/open-apis/bot/",), r"(?P<keep>/open-apis/bot/)(?:v2/)?hook/"),
    _address("webhook of Feishu flows", ("/flow/api/trigger-webhook/",), r"(?P<keep>/flow/api/trigger-webhook/)"),
    _address("webhook of DingTalk", ("oapi.dingtalk.com/robot/",), r"(?P<keep>oapi\.dingtalk\.com/robot/send\?)"),
    _address("webhook of WeCom", ("/cgi-bin/webhook/",), r"(?P<keep>/cgi-bin/webhook/\w{1,20}\?)"),
    _address("webhook of Discord", ("/api/webhooks/",), r"(?P<keep>/api/webhooks/)"),
    _address(
        "webhook of Teams",
        ("webhook.office.com/", "outlook.office.com/"),
        r"(?P<keep>(?:webhook|outlook)\.office\.com/webhook(?:b2)?/)",
        GITLEAKS + "microsoft-teams-webhook",
    ),
    _address("webhook of Zapier", ("hooks.zapier.com/",), r"(?P<keep>hooks\.zapier\.com/hooks/)"),
    _address("ServerChan", ("ftqq.com/",), r"(?P<keep>ftqq\.com/)"),
)


@functools.cache
def compiled_rules() -> tuple[tuple[tuple[str, ...], re.Pattern[str]], ...]:
    """Return the words and the pattern of every rule; compiled at the first use, not at import."""
    return tuple((rule.words, re.compile(rule.pattern)) for rule in RULES)
