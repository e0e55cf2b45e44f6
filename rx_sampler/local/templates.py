"""How a base model is made to answer: a few solved examples before the question, as Jinja chat templates.

A base model continues text. Shown three pairs of question and answer it continues with an answer, and then with a
question of its own, where `STOP` ends it.
"""

from __future__ import annotations

__all__ = ["PLAIN", "STOP", "THINKING"]

STOP = "\nQuestion:"

_INSTRUCTIONS = """\
{%- for message in messages if message.role in ('system', 'developer') -%}
{{ message.content | trim }}

{% endfor -%}
"""

PLAIN = (
    _INSTRUCTIONS
    + """\
Question: Good morning!
Answer:
Good morning! What would you like to know?

Question: Which metal is liquid at room temperature?
Answer:
Mercury is the metal that is liquid at room temperature.

Question: Why do leaves fall in autumn?
Answer:
In autumn the days grow short and cold, so a tree drops its leaves to save water until spring.

{% for message in messages -%}
{%- if message.role == 'user' -%}
Question: {{ message.content | trim }}
{% elif message.role == 'assistant' -%}
Answer:
{{ message.content | trim }}

{% elif message.role == 'tool' -%}
Result: {{ message.content | trim }}
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
Answer:
{% endif -%}
"""
)

THINKING = (
    "{%- set thinks = enable_thinking is not defined or enable_thinking -%}\n"
    + _INSTRUCTIONS
    + """\
Question: I have two boxes with six eggs each. How many eggs do I have?
<think>
Each box holds six eggs and there are two boxes. Two times six is twelve.
</think>
You have twelve eggs.

Question: Good morning!
<think>
Someone greets me. I greet them back and offer my help.
</think>
Good morning! What would you like to know?

Question: Write a line about winter.
<think>
Winter is cold and white. A short line should show snow.
</think>
Snow lies quietly on the roofs.

Question: Which metal is liquid at room temperature?
<think>
Nearly all metals are solid at room temperature. The one that flows is mercury.
</think>
It is mercury.

{% for message in messages -%}
{%- if message.role == 'user' -%}
Question: {{ message.content | trim }}
{% elif message.role == 'assistant' -%}
{%- if message.reasoning_content -%}
<think>
{{ message.reasoning_content | trim }}
</think>
{% endif -%}
{{ message.content | trim }}

{% elif message.role == 'tool' -%}
Result: {{ message.content | trim }}
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<think>
{% if not thinks -%}
</think>
{% endif -%}
{%- endif -%}
"""
)
