"""Samples as turns: who said what, with reasoning, calls of tools, their results and images told apart.

Messages may have the shapes of OpenAI's two interfaces, of Anthropic's, of TRL and of veRL; texts may contain the marks
of chat templates (ChatML, Llama 3), of reasoning and of tools. What has no known shape is shown as JSON.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from barograph.base.formatting import size
from barograph.base.model import Sample


def to_bytes(text: str) -> bytes:
    """Encode a text, lone surrogates included, as the index stores it."""
    return text.encode("utf-8", "surrogatepass")


Kind = Literal["text", "reasoning", "tool_call", "tool_result", "media", "other"]

REASONING = ("think", "thinking", "reasoning", "thought")

CALL = "<tool_call>"

MARK = re.compile(
    rf"<(?P<tag>{'|'.join(REASONING)}|tool_call|tool_response)>(?P<body>.*?)(?:</(?P=tag)>|\Z)", re.DOTALL
)

REASONING_END = re.compile(rf"\A(?P<body>.*?)</(?:{'|'.join(REASONING)})>", re.DOTALL)

ROLE = re.compile(
    r"<\|im_start\|>(?P<chatml>[\w-]+)\n|<\|start_header_id\|>(?P<llama>[\w-]+)<\|end_header_id\|>\n*", re.ASCII
)

TURN_END = re.compile(r"(?:<\|im_end\|>|<\|eot_id\|>)\n?\Z")

PICTURE = re.compile(r"size=(\d+)x(\d+)")  # the description of a PIL image, which is stored instead of it

PNG = b"\x89PNG\r\n\x1a\n"

NO_MODEL = ("prompt", "system", "developer", "user", "tool", "function")

MEDIA = ("image", "image_url", "input_image", "audio", "input_audio", "audio_url", "video", "video_url", "file")

OWN_FIELDS = (
    "role", "content", "type", "text", "name", "tool_calls", "function_call", "tool_call_id", "reasoning_content",
    "reasoning", "thinking", "refusal", "call_id", "arguments", "output", "summary",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TurnPart:
    """A piece of a turn; ``name`` is the tool's, or what a medium is and its size."""

    kind: Kind
    text: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one role said: prompt, completion, or the role of a message."""

    role: str
    parts: tuple[TurnPart, ...]


def turns_of(sample: Sample) -> list[Turn]:
    """Return the turns of a sample: its prompt, its messages, and its completion."""
    names = {call: name for message in sample.messages for call, name in _calls(message)}
    messages = (_message_turn(message, names) for message in sample.messages)
    return [*_text_turns(sample.prompt, "prompt"), *messages, *_text_turns(sample.completion, "completion")]


def tool_calls(turns: Iterable[Turn]) -> int:
    """Return how often the model calls tools; what others say is none, as a system prompt that describes the calls."""
    return sum(part.kind == "tool_call" for turn in turns if turn.role not in NO_MODEL for part in turn.parts)


def _text_turns(text: str, role: str) -> Iterator[Turn]:
    """Yield the turns of a text: one, or those that a chat template has joined."""
    marks = list(ROLE.finditer(text))
    before = text[: marks[0].start()] if marks else text
    if before.strip() or (before and not marks):
        yield Turn(role, tuple(_text_parts(TURN_END.sub("", before) if marks else before)))
    for mark, end in zip(marks, [*(mark.start() for mark in marks[1:]), len(text)], strict=False):
        if body := text[mark.end() : end]:
            yield Turn(mark["chatml"] or mark["llama"], tuple(_text_parts(TURN_END.sub("", body))))


def _text_parts(text: str) -> Iterator[TurnPart]:
    """Split a text at the marks of reasoning and of tools."""
    # A template may have opened the reasoning in the prompt, so that the completion only ends it.
    end = REASONING_END.match(text)
    if end and not any(f"<{tag}>" in end["body"] for tag in REASONING):
        yield TurnPart("reasoning", end["body"].strip("\n"))
        text = text[end.end() :]
    at = 0
    for mark in MARK.finditer(text):
        yield from _plain(text[at : mark.start()])
        yield _marked(mark["tag"], mark["body"].strip("\n"))
        at = mark.end()
    yield from _plain(text[at:])


def _plain(text: str) -> Iterator[TurnPart]:
    if text.strip():
        yield TurnPart("text", text.strip("\n"))


def _marked(tag: str, body: str) -> TurnPart:
    if tag in REASONING:
        return TurnPart("reasoning", body)
    if tag == "tool_response":
        return TurnPart("tool_result", body)
    try:
        call = json.loads(body)
    except (ValueError, RecursionError):
        return TurnPart("tool_call", body)
    return _call(call) if isinstance(call, Mapping) else TurnPart("tool_call", body)


def _message_turn(message: Mapping[str, Any], names: Mapping[str, str]) -> Turn:
    kind = message.get("type")
    role = message.get("role") or {"function_call": "assistant", "reasoning": "assistant"}.get(str(kind), "message")
    try:
        return Turn(_as_text(role), tuple(_message_parts(message, names)))
    except RecursionError:  # parts of parts without end
        return Turn(_as_text(role), (TurnPart("other", "…"),))


def _message_parts(message: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[TurnPart]:
    for name in ("reasoning_content", "reasoning", "thinking"):
        if message.get(name):
            yield TurnPart("reasoning", _as_text(message[name]))
    kind = message.get("type")
    if kind in ("function_call", "function_call_output", "reasoning"):
        yield from _content_parts(message, names)
    elif message.get("role") in ("tool", "function"):
        yield from _tool_result(message, message.get("tool_call_id"), names)
    else:
        yield from _content_parts(message.get("content"), names)
    calls = message.get("tool_calls")
    for call in (*(calls if isinstance(calls, Sequence) else ()), message.get("function_call")):
        if isinstance(call, Mapping):
            yield _call(call)
    if message.get("refusal"):
        yield TurnPart("text", _as_text(message["refusal"]))
    rest = {name: value for name, value in message.items() if name not in OWN_FIELDS}
    if rest:
        yield TurnPart("other", _as_text(rest))


def _content_parts(content: Any, names: Mapping[str, str]) -> Iterator[TurnPart]:
    """Yield the parts of a message's content: a text, or a list of parts of several types."""
    if isinstance(content, str):
        yield from _text_parts(content)
    elif isinstance(content, Sequence):
        for entry in content:
            yield from _content_parts(entry, names)
    elif isinstance(content, Mapping):
        yield from _typed_part(content, names)
    elif content is not None:
        yield TurnPart("other", _as_text(content))


def _typed_part(part: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[TurnPart]:
    kind = str(part.get("type"))
    if kind in ("thinking", "reasoning", "redacted_thinking"):
        texts = part.get("thinking") or part.get("text") or part.get("summary") or part.get("data") or ""
        yield TurnPart("reasoning", "\n".join(_summaries(texts)))
    elif kind in ("tool_use", "function_call", "server_tool_use"):
        yield _call(part)
    elif kind in ("tool_result", "function_call_output"):
        yield from _tool_result(part, part.get("tool_use_id") or part.get("call_id"), names)
    elif kind in MEDIA:
        yield _medium(kind, part)
    elif isinstance(part.get("text"), str):
        yield from _text_parts(part["text"])
    else:
        yield TurnPart("other", _as_text(part))


def _summaries(texts: Any) -> Iterator[str]:
    for entry in [texts] if isinstance(texts, str | Mapping) else texts if isinstance(texts, Sequence) else ():
        yield _as_text(entry.get("text", "") if isinstance(entry, Mapping) else entry)


def _calls(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the ids of the calls in a message with the names of the tools, so that results can be named."""
    calls, content = message.get("tool_calls"), message.get("content")
    for call in (message, *(calls if isinstance(calls, list) else ()), *(content if isinstance(content, list) else ())):
        if isinstance(call, Mapping) and (id := call.get("call_id") or call.get("id")) and _call(call).name:
            yield str(id), _call(call).name


def _call(call: Mapping[str, Any]) -> TurnPart:
    inner = call.get("function")
    call = inner if isinstance(inner, Mapping) else call
    given = next((call[key] for key in ("arguments", "input", "parameters") if key in call), "")
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return TurnPart("tool_call", given, str(call.get("name", "")))
    return TurnPart("tool_call", _as_text(given), str(call.get("name", "")))


def _tool_result(message: Mapping[str, Any], call: Any, names: Mapping[str, str]) -> Iterator[TurnPart]:
    name = message.get("name") or names.get(str(call), "")
    content = message.get("content", message.get("output"))
    for part in _content_parts(content, names) if not isinstance(content, str) else [TurnPart("text", content)]:
        yield part if part.kind == "media" else TurnPart("tool_result", part.text, str(name))


def _medium(kind: str, part: Mapping[str, Any]) -> TurnPart:
    """Return a placeholder for an image, a sound, a video or a file: what it is, and how large."""
    what = next(word for word in ("image", "audio", "video", "file") if word in kind)
    held = next((part[key] for key in (kind, what, "source", "url", "data") if part.get(key)), "")
    held = dict(held) if isinstance(held, Mapping) else {"url": str(held)}
    address = str(held.get("data") or held.get("url") or "")
    head, comma, data = address.partition(",")
    packed = data if head.startswith("data:") and comma else str(held.get("data") or "")
    media_type = held.get("media_type") or (head[5:].split(";")[0] if head.startswith("data:") else "")
    facts = [what, str(media_type), _pixels(packed, part, address), size(len(packed) * 3 // 4) if packed else ""]
    return TurnPart(
        "media", address if address.startswith(("http:", "https:")) else "", " · ".join(filter(None, facts))
    )


def _pixels(packed: str, part: Mapping[str, Any], description: str) -> str:
    width, height = part.get("width"), part.get("height")
    if isinstance(width, int) and isinstance(height, int):
        return f"{width} × {height}"
    if found := PICTURE.search(description[:1000]):
        return f"{found[1]} × {found[2]}"
    try:
        head = b64decode(packed[:64])
    except ValueError:
        return ""
    if not head.startswith(PNG) or len(head) < 24:
        return ""
    return f"{int.from_bytes(head[16:20], 'big')} × {int.from_bytes(head[20:24], 'big')}"


def _as_text(value: Any) -> str:
    """Return a text as it is, and other data as JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):
        return "…"
