"""Samples as turns."""

import base64
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.base.model import Sample
from barograph.journal.samples.transcript import turns_of

PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 640, 480) + bytes(2000)).decode()

CASES: dict[str, tuple[list[dict[str, Any]], list[tuple[str, list[tuple[str, ...]]]]]] = {
    "OpenAI": (
        [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": None, "reasoning_content": "Use a tool.", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"at": "Ulm"}'}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        ],
        [
            ("user", [("text", "Weather?", "")]),
            ("assistant", [("reasoning", "Use a tool.", ""), ("tool_call", '{"at": "Ulm"}', "weather")]),
            ("tool", [("tool_result", "rain", "weather")]),
        ],
    ),
    "OpenAI's responses": (
        [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Use a tool."}]},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        ],
        [
            ("user", [("text", "Weather?", "")]),
            ("assistant", [("reasoning", "Use a tool.", "")]),
            ("assistant", [("tool_call", "{}", "weather")]),
            ("message", [("tool_result", "rain", "weather")]),
        ],
    ),
    "Anthropic": (
        [
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "x"}, {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "t1", "name": "look", "input": {"deep": True}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [
                    {"type": "text", "text": "found"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}]}]},
        ],
        [
            ("assistant", [
                ("reasoning", "Hm.", ""), ("text", "Let me see.", ""), ("tool_call", '{"deep": true}', "look")]),
            ("user", [("tool_result", "found", "look"), ("media", "", "image · image/png · 640 × 480 · 2.0 kB")]),
        ],
    ),
    "TRL": (
        [
            {"role": "user", "content": [
                {"type": "image", "image": "<PIL.PngImageFile image mode=RGB size=32x16 at 0x7F>"},
                {"type": "image"}, {"type": "text", "text": "What?"}]},
            {"role": "assistant", "tool_calls": [
                {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]},
            {"role": "tool", "name": "f", "content": "2"},
        ],
        [
            ("user", [("media", "", "image · 32 × 16"), ("media", "", "image"), ("text", "What?", "")]),
            ("assistant", [("tool_call", '{"x": 1}', "f")]),
            ("tool", [("tool_result", "2", "f")]),
        ],
    ),
    "veRL": (
        [
            {"role": "assistant", "content":
                '<think>\nSum.\n</think>\n<tool_call>\n{"name": "sum", "arguments": {"n": [1]}}\n</tool_call>'},
            {"role": "user", "content": "<tool_response>\n1\n</tool_response>"},
            {"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}]},
        ],
        [
            ("assistant", [("reasoning", "Sum.", ""), ("tool_call", '{"n": [1]}', "sum")]),
            ("user", [("tool_result", "1", "")]),
            ("assistant", [("media", "https://x.test/a.png", "image")]),
        ],
    ),
    "of no known shape": (
        [{"content": {"a": 1}, "id": 7}, {"role": "user", "content": 3}, {}],
        [
            ("message", [("other", '{"a": 1}', ""), ("other", '{"id": 7}', "")]),
            ("user", [("other", "3", "")]),
            ("message", []),
        ],
    ),
}  # fmt: skip


def shown(sample: Sample) -> list[tuple[str, list[tuple[str, ...]]]]:
    return [(turn.role, [(part.kind, part.text, part.name) for part in turn.parts]) for turn in turns_of(sample)]


@pytest.mark.parametrize("name", CASES)
def test_messages_become_turns(name: str):
    """The shapes of OpenAI, Anthropic, TRL and veRL; other ones are shown as JSON."""
    messages, expected = CASES[name]
    assert shown(Sample(messages=tuple(messages))) == expected


def test_the_marks_of_a_template_make_turns():
    """ChatML and Llama 3, in the prompt and in a completion of several turns."""
    prompt = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    completion = "Hello<|im_end|>\n<|im_start|>user\n<tool_response>1</tool_response><|im_end|>\n"
    assert shown(Sample(prompt, completion)) == [
        ("system", [("text", "Be brief.", "")]), ("user", [("text", "Hi", "")]),
        ("completion", [("text", "Hello", "")]), ("user", [("tool_result", "1", "")]),
    ]  # fmt: skip
    llama = "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
    assert shown(Sample(llama)) == [("user", [("text", "Hi", "")])]


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("<think>a</think>b", [("reasoning", "a", ""), ("text", "b", "")]),
        ("a</think>b", [("reasoning", "a", ""), ("text", "b", "")]),
        ("<think>no end", [("reasoning", "no end", "")]),
        ("x<thinking>a</thinking>y", [("text", "x", ""), ("reasoning", "a", ""), ("text", "y", "")]),
        ("<tool_call>not JSON</tool_call>", [("tool_call", "not JSON", "")]),
        ("<b>think</b>", [("text", "<b>think</b>", "")]),
    ],
)
def test_reasoning_is_told_apart(completion: str, expected: list[tuple[str, str, str]]):
    """Also where the prompt has opened it, or where it was cut off."""
    assert shown(Sample(completion=completion)) == [("completion", expected)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "type",
                    "content",
                    "text",
                    "image",
                    "image_url",
                    "source",
                    "tool_calls",
                    "function",
                    "input",
                    "id",
                ]
            ),
            inner | st.sampled_from(["image", "tool_use", "tool_result", "thinking", "assistant", "tool"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(st.sampled_from(["role", "type", "content", "tool_calls", "reasoning"]), JSON)))
def test_any_json_has_turns(messages: list[dict[str, Any]]):
    """A message may be anything that JSON has."""
    assert len(turns_of(Sample(messages=tuple(messages)))) == len(messages)
