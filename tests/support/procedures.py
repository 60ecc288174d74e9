"""A folder of operations, half of it in Chinese, and how people ask for each and order it.

Written before any of it was asked. Kinds of index: each file's purpose in both languages, a list in English, and
what `init` writes.
"""

from __future__ import annotations

from memory_anchor.front.cli.init import OPERATIONS_README

FILES = {
    "db_migration.yaml": """name: db_migration
when: the schema of a table changes
steps:
  - alembic revision --autogenerate -m "what changes"
  - review the generated script, add the downgrade
  - alembic upgrade head on staging, then production
undo: alembic downgrade -1
""",
    "oncall_handover.md": """# On-call handover

## Before the shift ends
List open alerts and running changes in the handover note; name who waits for an answer.

## The call
Ten minutes with the next engineer; the pager moves only after they acknowledge.
""",
    "rollback.md": """# 线上回滚

## 判断
错误率超过百分之二或核心接口不可用，先回滚再排查。

## 步骤
在流水线里选上一个绿色构建，点「重新部署」，观察十分钟。
""",
    "release_checklist.md": """# Release checklist

1. All checks green on main.
2. Write the changelog entry.
3. Tag vX.Y.Z and push the tag; the pipeline publishes the package.
""",
    "incident.md": """# 故障处理

先止损，再定位。拉群、指定指挥官、每十五分钟同步一次进展，恢复后两天内写复盘。
""",
    "add_tenant.md": """# Adding a tenant

Run `tenantctl create NAME --region eu-west`, grant the owner role, send the welcome mail.
""",
    "backup_restore.yaml": """名称: 备份恢复
步骤:
  - 确认快照时间点
  - 停止写入
  - pg_restore 到新实例，核对行数后切换
""",
    "code_review.md": """# Code review

Two approvals for anything below payments; comments are answered within a day; squash before merging.
""",
}
_BOTH = """# 操作索引 · Index of operations

这里说一件事怎么做。How things are done here, one file a task.

| 文件 file | 什么时候看 when to read it |
|---|---|
| [db_migration.yaml](db_migration.yaml) | 数据库迁移、表结构变更 · schema changes |
| [oncall_handover.md](oncall_handover.md) | 值班交接 · handing over on-call |
| [rollback.md](rollback.md) | 线上出问题要回滚 · rolling back production |
| [release_checklist.md](release_checklist.md) | 发版前的检查 · before a release |
| [incident.md](incident.md) | 故障处理流程 · outages |
| [add_tenant.md](add_tenant.md) | 开通新租户 · a new customer |
| [backup_restore.yaml](backup_restore.yaml) | 从备份恢复 · restoring a backup |
| [code_review.md](code_review.md) | 代码评审要求 · reviews |
"""
_LIST = """# Operations

- `db_migration.yaml`: how the database is migrated
- `oncall_handover.md`: how on-call is handed over
- `rollback.md`: how production is rolled back
- `release_checklist.md`: how to release
- incident.md: outages
- add_tenant.md: new customers
- backup_restore.yaml: restoring
- code_review.md: reviews
"""
QUESTIONS = [
    ("数据库迁移怎么做", "db_migration"),
    ("值班怎么交接", "oncall_handover"),
    ("线上怎么回滚", "rollback"),
    ("怎么发版", "release_checklist"),
    ("出故障了怎么处理", "incident"),
    ("新租户怎么开通", "add_tenant"),
    ("怎么从备份恢复", "backup_restore"),
    ("怎么做代码评审", "code_review"),
    ("how do we migrate the database", "db_migration"),
    ("how to hand over on-call", "oncall_handover"),
    ("how do I roll back production", "rollback"),
    ("how to cut a release", "release_checklist"),
    ("how should we handle an outage", "incident"),
    ("how do I create a tenant", "add_tenant"),
    ("how to restore from a backup", "backup_restore"),
    ("how do we review code", "code_review"),
]
ORDERS = [
    ("帮我把线上回滚一下", "rollback"),
    ("把数据库迁移跑一下", "db_migration"),
    ("今天发个版吧", "release_checklist"),
    ("给新客户开通一个租户", "add_tenant"),
    ("把昨晚的备份恢复出来", "backup_restore"),
    ("我要下班了，帮我做值班交接", "oncall_handover"),
    ("线上挂了，赶紧处理一下故障", "incident"),
    ("评审一下这个代码改动", "code_review"),
    ("Roll back production now", "rollback"),
    ("please migrate the database to the new schema", "db_migration"),
    ("Cut a release today", "release_checklist"),
    ("add a tenant for Acme", "add_tenant"),
    ("restore last night's backup", "backup_restore"),
    ("hand over on-call to Priya", "oncall_handover"),
    ("Production is down, handle the outage", "incident"),
    ("review the code in this branch", "code_review"),
]
NOTHING_HERE = [
    "帮我写一首诗",
    "给函数加上类型注解",
    "为什么测试这么慢",
    "rename this variable",
    "explain this regex",
    "what's the weather",
    "打开日志看一下",
    "sort the imports",
    "how do I knit a sweater",
    "怎么做红烧肉",
]

INDEXES = {"both": _BOTH, "list": _LIST, "init": OPERATIONS_README}
