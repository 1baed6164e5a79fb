"""Forms of values that are secrets under any key, as a table: one rule per provider, each with its source.

A rule is tried only where one of its ``words`` occurs, which is a fast search. Its pattern starts with a literal, and
every repetition that something must follow has an upper bound, so that the time is linear in the length of the text.
A pattern with a group ``keep`` keeps that part, such as the address of a webhook.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

GITLEAKS = "gitleaks 8.30 config/gitleaks.toml: "
ADDRESS = "the address under which the provider takes messages; the path or query is the credential"
SCANNERS = "the form that public secret scanners search for; the provider publishes no specification"
START = r"(?:(?<![A-Za-z0-9])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrt]))"  # also after an escape of a URL or of repr()
URL_REST = r"[^\s\"'<>\\]+"


class Rule(NamedTuple):
    """Form of one kind of secret."""

    name: str
    words: tuple[str, ...]  # lower case; one of them is in every match
    pattern: str
    source: str


RULES = (
    Rule(
        "private key",
        ("private key",),
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[\s\S]*?-----END [A-Z0-9 ]{0,60}-----|[\s\S]*)",
        "RFC 7468 section 10; RFC 4880 section 6.2; OpenSSH PROTOCOL.key",
    ),
    Rule(
        "HTTP authorization", ("bearer",), START + r"(?i:bearer)\s{1,5}[A-Za-z0-9._~+/=-]{8,}", "RFC 6750 section 2.1"
    ),
    Rule(
        "HTTP basic authorization",
        ("basic",),
        START + r"(?i:basic)\s{1,5}(?=[A-Za-z+/]{0,400}[0-9=])[A-Za-z0-9+/]{8,}={0,2}",
        "RFC 7617 section 2",
    ),
    Rule("JSON web token", ("eyj",), START + r"eyJ[\w-]{8,400}\.[\w-]{8}[\w.-]{8,}", "RFC 7519 section 3"),
    Rule(
        "sk-: OpenAI, Anthropic, DeepSeek, OpenRouter",
        ("sk-",),
        START + r"sk-[\w-]{16,}",
        GITLEAKS + "openai-api-key, anthropic-api-key",
    ),
    Rule(
        "Hugging Face",
        ("hf_", "api_org_"),
        START + r"(?:hf|api_org)_[A-Za-z0-9]{16,}",
        GITLEAKS + "huggingface-access-token",
    ),
    Rule(
        "GitHub",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
        START + r"gh[pousr]_[A-Za-z0-9]{16,}",
        GITLEAKS + "github-pat, github-oauth, github-app-token",
    ),
    Rule("GitHub, fine-grained", ("github_pat_",), START + r"github_pat_\w{20,}", GITLEAKS + "github-fine-grained-pat"),
    Rule(
        "GitLab",
        ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-", "gloas-", "glagent-", "glimt-"),
        START + r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|oas|agent|imt)-[\w-]{16,}(?:\.[\w.-]+)?",
        GITLEAKS + "gitlab-*",
    ),
    Rule(
        "Slack", ("xox", "xapp-"), START + r"(?:xox[a-z](?:\.xox[a-z])?|xapp)-[A-Za-z0-9-]{10,}", GITLEAKS + "slack-*"
    ),
    Rule(
        "AWS access key id, with its secret beside it",
        ("akia", "asia", "abia", "acca"),
        START + r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}"
        r"(?:[\s,:;|/\"']{1,5}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+]))?",
        GITLEAKS + "aws-access-token",
    ),
    Rule(
        "AWS Bedrock",
        ("absk", "bedrock-api-key-"),
        START + r"(?:ABSK|bedrock-api-key-)[A-Za-z0-9+/=]{40,}",
        GITLEAKS + "aws-amazon-bedrock-api-key-*",
    ),
    Rule("Google API", ("aiza",), START + r"AIza[\w-]{30,}", GITLEAKS + "gcp-api-key"),
    Rule(
        "Google OAuth",
        ("ya29.", "gocspx-"),
        START + r"(?:ya29\.|GOCSPX-)[\w-]{20,}",
        SCANNERS,
    ),
    Rule("Alibaba Cloud access key id", ("ltai",), START + r"LTAI[A-Za-z0-9]{12,}", GITLEAKS + "alibaba-access-key-id"),
    Rule(
        "Tencent Cloud secret id",
        ("akid",),
        START + r"AKID[A-Za-z0-9]{32,}",
        SCANNERS,
    ),
    Rule("Volcengine access key id", ("aklt",), START + r"AKLT[A-Za-z0-9_=-]{20,}", SCANNERS),
    Rule(
        "Azure AD client secret",
        ("q~",),
        r"(?<![\w~.-])[\w~.]{3}\dQ~[\w~.-]{31,40}",
        GITLEAKS + "azure-ad-client-secret",
    ),
    Rule("Groq", ("gsk_",), START + r"gsk_[A-Za-z0-9]{20,}", "trufflehog pkg/detectors/groq"),
    Rule("NVIDIA", ("nvapi-",), START + r"nvapi-[\w-]{20,}", "trufflehog pkg/detectors/nvapi"),
    Rule("xAI", ("xai-",), START + r"xai-[A-Za-z0-9]{20,}", "trufflehog pkg/detectors/xai"),
    Rule("Replicate", ("r8_",), START + r"r8_[A-Za-z0-9]{20,}", "trufflehog pkg/detectors/replicate"),
    Rule(
        "Perplexity",
        ("pplx-",),
        START + r"pplx-(?=[A-Za-z]{0,60}[0-9])[A-Za-z0-9]{20,}",
        GITLEAKS + "perplexity-api-key",
    ),
    Rule("Fireworks", ("fw_",), START + r"fw_[A-Za-z0-9]{20,}", SCANNERS),
    Rule("Together", ("tgp_v1_",), START + r"tgp_v1_[\w-]{20,}", SCANNERS),
    Rule("LangSmith", ("lsv2_",), START + r"lsv2_(?:pt|sk)_\w{20,}", "trufflehog pkg/detectors/langsmith"),
    Rule("W&B", ("wandb_v1_", "local-"), START + r"(?:wandb_v1_\w{20,}|local-[0-9a-f]{40})", SCANNERS),
    Rule("npm", ("npm_",), START + r"npm_[A-Za-z0-9]{30,}", GITLEAKS + "npm-access-token"),
    Rule("PyPI", ("pypi-",), START + r"pypi-[\w-]{40,}", GITLEAKS + "pypi-upload-token"),
    Rule("Databricks", ("dapi",), START + r"dapi[a-f0-9]{32}(?:-\d)?", GITLEAKS + "databricks-api-token"),
    Rule(
        "Stripe",
        ("_live_", "_test_", "_prod_", "whsec_"),
        START + r"(?:(?:sk|rk|pk)_(?:test|live|prod)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{20,})",
        GITLEAKS + "stripe-access-token",
    ),
    Rule("SendGrid", ("sg.",), START + r"SG\.[\w-]{16,40}\.[\w-]{20,}", GITLEAKS + "sendgrid-api-token"),
    Rule("Telegram bot", (":aa",), r"(?<!\d)\d{8,10}:AA[\w-]{30,}", GITLEAKS + "telegram-bot-api-token"),
    Rule(
        "Discord bot",
        (".",),
        r"(?<![\w.-])[MNO][A-Za-z0-9_-]{23,27}\.[\w-]{6}\.[\w-]{27,40}(?![\w-])",
        "detect-secrets plugins/discord.py",
    ),
    Rule("DigitalOcean", ("_v1_",), START + r"do[opr]_v1_[a-f0-9]{40,}", GITLEAKS + "digitalocean-pat"),
    Rule("Grafana", ("glsa_", "glc_"), START + r"gl(?:sa|c)_[A-Za-z0-9_+/=]{30,}", GITLEAKS + "grafana-*"),
    Rule("HashiCorp Vault", ("hvs.", "hvb."), START + r"hv[sb]\.[\w-]{20,}", GITLEAKS + "vault-service-token"),
    Rule("Shopify", ("shp",), START + r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}", GITLEAKS + "shopify-access-token"),
    Rule(
        "Notion, Linear", ("ntn_", "lin_api_"), START + r"(?:ntn|lin_api)_[A-Za-z0-9]{30,}", GITLEAKS + "notion, linear"
    ),
    Rule("Sentry", ("sntry",), START + r"sntry[su]_[A-Za-z0-9+/=_]{30,}", GITLEAKS + "sentry-*"),
    Rule(
        "Pulumi, Prefect, RubyGems",
        ("pul-", "pnu_", "rubygems_"),
        START + r"(?:pul-[a-f0-9]{40}|pnu_[A-Za-z0-9]{30,}|rubygems_[a-f0-9]{40,})",
        GITLEAKS + "pulumi, prefect, rubygems",
    ),
    Rule(
        "Doppler, Docker, Postman",
        ("dp.", "dckr_pat_", "pmak-"),
        START + r"(?:dp\.(?:pt|st|ct)\.[\w.-]{30,}|dckr_pat_[\w-]{20,}|PMAK-[A-Za-z0-9-]{40,})",
        GITLEAKS + "doppler-api-token, postman-api-token; Docker: " + SCANNERS,
    ),
    Rule("age", ("age-secret-key-",), START + r"AGE-SECRET-KEY-1[A-Z0-9]{50,}", GITLEAKS + "age-secret-key"),
    Rule(
        "webhook of Slack",
        ("hooks.slack.com/",),
        rf"(?P<keep>hooks\.slack\.com/)(?:services|workflows|triggers)/{URL_REST}",
        GITLEAKS + "slack-webhook-url",
    ),
    Rule(
        "webhook of Feishu and Lark",
        ("/open-apis/bot/",),
        rf"(?P<keep>/open-apis/bot/)(?:v2/)?hook/{URL_REST}",
        ADDRESS,
    ),
    Rule(
        "webhook of Feishu flows",
        ("/flow/api/trigger-webhook/",),
        rf"(?P<keep>/flow/api/trigger-webhook/){URL_REST}",
        ADDRESS,
    ),
    Rule(
        "webhook of DingTalk",
        ("oapi.dingtalk.com/robot/",),
        rf"(?P<keep>oapi\.dingtalk\.com/robot/send\?){URL_REST}",
        ADDRESS,
    ),
    Rule(
        "webhook of WeCom",
        ("/cgi-bin/webhook/",),
        rf"(?P<keep>/cgi-bin/webhook/\w{{1,20}}\?){URL_REST}",
        ADDRESS,
    ),
    Rule(
        "webhook of Discord",
        ("/api/webhooks/",),
        rf"(?P<keep>/api/webhooks/){URL_REST}",
        ADDRESS,
    ),
    Rule(
        "webhook of Teams",
        ("webhook.office.com/", "outlook.office.com/"),
        rf"(?P<keep>(?:webhook|outlook)\.office\.com/webhook(?:b2)?/){URL_REST}",
        GITLEAKS + "microsoft-teams-webhook",
    ),
    Rule(
        "webhook of Zapier",
        ("hooks.zapier.com/",),
        rf"(?P<keep>hooks\.zapier\.com/hooks/){URL_REST}",
        ADDRESS,
    ),
    Rule("ServerChan", ("ftqq.com/",), rf"(?P<keep>ftqq\.com/){URL_REST}", ADDRESS),
)


@functools.cache
def compiled() -> tuple[tuple[tuple[str, ...], re.Pattern[str]], ...]:
    """Return the words and the pattern of every rule; compiled at the first use, not at import."""
    return tuple((rule.words, re.compile(rule.pattern)) for rule in RULES)
