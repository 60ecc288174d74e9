"""Token counts that budgets rest on: real BPE, and the estimate used without it."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_anchor.language import tokens
from memory_anchor.language.tokens import count_tokens, cut_to_tokens, estimate_tokens

ROOT = Path(__file__).parents[2]
ENGLISH = (
    "Memory Anchor keeps what an agent learned outside the context window. Facts that were verified stay for ever, "
    "events fade after the days they were given, and the identity of a project is always loaded in full. When the "
    "session ends, the working notes become one event; a human confirms three times before anything reaches the top. "
) * 3
CHINESE = (
    "记忆锚点把智能体学到的东西放在上下文窗口之外。经过验证的事实永久保留，事件在给定的天数之后归档，"
    "项目的身份信息每次会话都会完整加载。会话结束时，工作笔记会变成一个事件；任何内容要进入最高层，都必须由人确认三次。"
    "检索同时使用语义和关键词，结果附带引用来源，没有相关内容时返回空列表。"
) * 3


ENCYCLOPAEDIC = (
    "岷江发源于岷山南麓，流经松潘、茂县、汶川，至都江堰分为内外二江，于宜宾注入长江，全长约七百三十五公里。"
    "古人曾以岷江为长江的源头，直到明末徐霞客溯金沙江而上，才指出金沙江为长江正源。流域内分布着多种珍稀动物，"
    "1933年地震形成的堰塞湖至今犹存。景德镇位于江西省东北部，宋真宗景德元年（1004年）因产青白瓷而得名，"
    "明清两代设有御窑，所产瓷器远销海外；2004年起每年举办国际陶瓷博览会。俾斯麦，普鲁士首相，主导了三次王朝战争，"
    "统一后推行社会保险立法，后因与皇帝意见不合而辞职。二战期间，该市约有四成建筑毁于空袭，战后按原样重建，"
    "旧城区于1997年列入世界遗产名录。全市辖五区三县，常住人口约二百八十万，方言属吴语太湖片。"
    "该片由两位导演联合执导，讲述了一名退役军人在边境小镇寻找失散多年的妹妹的故事，获得第十五届电影节最佳摄影奖提名，"
    "首周末票房达到三千二百万元。快速排序是一种排序算法，平均情况下需要进行对数级的比较，在最坏状况下则较慢，但这种情况并不常见；"
    "它通常明显比其他算法更快，因为内部循环可以在大部分的架构上很有效率地被实现出来。普通雨燕是一种候鸟，"
    "几乎一生都在飞行，只有繁殖时才落地，以空中的昆虫为食，每年从非洲飞往欧洲和亚洲，行程超过一万公里。"
)
CHAT = (
    "Hey! I'm so glad you're here, it's been ages. Don't worry about the cake, we've got plenty. How's your mum? "
    "She'd mentioned the move to Porto last time, wasn't that in May? Haha, yeah, I couldn't believe it either!! "
    "Anyway, let's catch up on Sunday; I'll bring the photos, and you can tell me everything about Ben's new job. "
)
SHELL = """
set -euo pipefail
for file in "$HOME"/.config/app/*.yaml; do
    [[ -f "$file" ]] || continue
    if ! grep -qE '^version: [0-9]+' "$file"; then
        printf 'no version in %s\\n' "${file##*/}" >&2; exit 2
    fi
    curl --fail --silent --max-time 5 -H "Accept: */*" "http://127.0.0.1:${PORT:-8080}/v1/health" | jq -r .status
done
"""
TEXTS = {
    "english": ENGLISH,
    "chat": CHAT,
    "documentation": (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"),
    "chinese": CHINESE,
    "encyclopaedic chinese": ENCYCLOPAEDIC,
    "python": inspect.getsource(json),
    "shell": SHELL,
    "questions as yaml": (ROOT / "scripts/evaluation/data/questions_zh.yaml").read_text(encoding="utf-8"),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_the_estimate_is_within_ten_percent_of_the_tokenizer(kind: str) -> None:
    """Rule budget.estimate: without the tokenizer, counts stay within 10 % on Chinese, English and code."""
    assert estimate_tokens(TEXTS[kind]) == pytest.approx(count_tokens(TEXTS[kind]), rel=0.10)


def test_counts_come_from_the_o200k_vocabulary() -> None:
    """Rule budget.tokens: real BPE where it is installed."""
    assert count_tokens("hello world") == 2
    assert count_tokens("") == 0


def test_counting_loads_the_tokenizer_and_nothing_else() -> None:
    """Rule tokens.light: the wrapper's rank tables, 64 MB that counting never reads, are not built."""
    code = "import sys; from memory_anchor.language.tokens import count_tokens; n = count_tokens('hello world 你好')"
    told = "; print(n, 'bpe_openai.compat' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code + told], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["4", "False"]


def test_without_the_tokenizer_counting_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule budget.fallback: a missing package costs precision, never an error."""
    monkeypatch.setattr(tokens, "_tokenizer", lambda: None)
    assert count_tokens(ENGLISH) == estimate_tokens(ENGLISH)
    assert 0 < count_tokens(cut_to_tokens(CHINESE, 50)) <= 50


@settings(max_examples=60)
@given(st.text(max_size=200), st.integers(0, 40))
def test_a_cut_is_a_prefix_within_the_limit(text: str, limit: int) -> None:
    """Rule budget.cut: never over the limit, never anything but a prefix, lone surrogates and all."""
    cut = cut_to_tokens(text, limit)
    assert text.startswith(cut)
    assert count_tokens(cut) <= limit
    assert cut == text or count_tokens(text) > limit
