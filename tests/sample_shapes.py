"""Samples of every shape, as arguments of ``run.sample``."""

import base64
import struct
from typing import Any

MARKDOWN = r"""# Title

So \(x^2\) is **four**, not $5 or $6: `x = 2`, and $\frac{1$ is broken.

$$\sum_i x_i$$

```python
print("<b>")
```

| a | b |
|---|---|
| 1 | 2 |

- <img src=x onerror="document.title='owned'"> [link](javascript:document.title='owned')
- $\href{javascript:alert(1)}{y}$ $\rule{9999em}{9999em}$ <script>document.title = 'owned'</script>
"""
PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 64, 48) + bytes(999)).decode()
SYSTEM = "Be brief. " * 100
SAMPLES: dict[str, dict[str, Any]] = {
    "chat": {"prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Hi"}],
             "completion": [{"role": "assistant", "content": "Hello"}]},
    "tool": {"messages": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "look", "arguments": '{"at": "Ulm"}'}}]},
        {"role": "tool", "tool_call_id": "1", "content": "rain"}]},
    "reasoning": {"prompt": "q", "completion": "<think>secret thoughts</think>The end"},
    "turns": {"prompt": "<|im_start|>user\nOne<|im_end|>\n<|im_start|>assistant\n",
              "completion": "Two<|im_end|>\n<|im_start|>user\nThree<|im_end|>\n"},
    "image": {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}]}]},
    "empty": {},
    "huge": {"completion": "begin " + "x" * 500_000 + " needle " + "y" * 400_000 + " end"},
    "right to left": {"completion": "شكرا جزيلا"},
    "emoji": {"completion": "👩‍🚀 😀"},
    "controls": {"completion": "a\x00b\x1b[31mc \u202egnp"},
    "hostile": {"completion": "<script>document.title = 'owned'</script>", "answer": "<b>4</b>", "task": "<i>t</i>",
                "messages": [{"role": "<u>r</u>", "content": "<img src=x onerror=\"document.title='owned'\">"}]},
    "markdown": {"completion": MARKDOWN},
}  # fmt: skip
