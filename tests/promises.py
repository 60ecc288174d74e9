"""Each sentence of README.md and docs/*.md that promises, with what holds it.

A sentence promises if it says never, always, at most, cannot, "only a human", "no ... can" or "may", or "nothing ...
is", "can", "may" or "counts" (`PROMISING` in `tests/unit/test_promises.py`; code in backquotes does not count, a row of
a table is one sentence). Pages in
`docs/reference` and `docs/tutorials` are generated or run, and checked there. A Chinese page promises what its English
twin does and no more (`tests/unit/test_translations.py`), so what is listed here holds for both.

Both ways, in that test: a sentence that promises is listed here or in `NO_PROMISE`, and whatever is listed stands in
its page. A sentence is known by its beginning, as short as it stays the only one.

held by:
    test_file::test_name       a test that fails if the sentence becomes false
    package.module.NAME=value  the bound that the code applies has the number that the sentence says
    scripts/NAME               a measured figure: the script that prints it
"""

from __future__ import annotations

Held = dict[str, tuple[str, ...]]

_GATE = ("test_facts::test_every_origin_has_its_cap",)
_HUMANS_ALONE = (
    "test_cli::test_without_a_terminal_nobody_counts_as_human",
    "test_callers::test_a_caller_over_a_transport_is_an_agent_and_never_a_human",
    "test_plugin::test_no_command_of_the_plugin_approves",
)
_RIGHTS = ("test_table_of_rights::test_the_table_is_walked_through_every_door",)
_ERASING = ("test_purge::test_only_a_human_purges", "test_facts::test_forgetting_archives_and_restoring_brings_back")
_L0_WHOLE = (
    "test_missed_mutations::test_twenty_entries_of_l0_stand_in_a_context_whole",
    "test_context::test_the_constitution_is_whole_even_where_it_alone_exceeds_the_budget",
)
_BUDGET = ("test_context::test_no_context_exceeds_its_budget_unless_the_constitution_alone_does",)
_LINKED = ("test_linked::test_what_joins_takes_no_better_ones_place_and_makes_no_answer_longer",)
_LINKS = ("test_links::test_links_are_bounded_and_told_to_nobody_who_may_not_read_them",)
_RESCAN = (
    "test_knowledge::test_what_changed_while_an_engine_runs_is_noticed_behind_a_search",
    "memory_anchor.extensions.knowledge.library.RESCAN_S=30.0",
)
_WEAK = ("test_relevance::test_an_answer_holds_the_best_there_is_and_says_that_it_is_weak",)
_GIT = ("test_a02_commands_of_a_repository::test_an_answer_of_git_is_bounded_in_bytes_and_time",)
_NOTHING_RUNS = (
    "test_a02_commands_of_a_repository::test_looking_at_a_hostile_repository_runs_nothing",
    "test_missed_mutations::test_no_variable_of_git_reaches_it",
)
_OTHER_ROWS = (
    "test_api_embedders::test_prompts_of_ones_own_stand_before_what_is_sent_and_make_other_rows",
    "test_snapshot::test_a_snapshot_of_another_embedder_or_format_is_not_used",
)
_SOURCE_AWAY = ("test_knowledge::test_a_source_that_cannot_be_read_is_tried_again_later",)

PROMISES: dict[str, Held] = {
    "README.md": {
        "**0 background model calls by default**": (
            "test_remembering::test_by_default_no_write_no_search_and_no_night_asks_a_language_model",
        ),
        "`memory-anchor pause --for 2h` stops saving": (
            "test_pausing::test_a_silent_pause_recalls_nothing_unprompted",
            "test_cli::test_pausing_stops_agents_and_not_reading",
        ),
        "If something worth keeping was said": (
            "test_agent_settings::test_by_default_an_agent_is_asked_once_where_the_small_model_saw_candidates",
        ),
        "| L0 `identity_schema` |": (
            "test_identity_schema::test_approval_refuses_a_twenty_first_entry",
            "test_routing::test_an_ordinary_question_is_not_answered_from_identity",
            *_L0_WHOLE,
        ),
        "An agent's own confidence is capped at 0.95": _GATE,
        "No tool erases a memory": (*_ERASING, *_RIGHTS),
        "**A human stays in charge.**": (*_HUMANS_ALONE, *_RIGHTS),
        "Unknown names and wrong values are always errors": (
            "test_settings::test_a_wrong_name_or_value_is_an_error_wherever_it_stands",
            "test_env_names::test_a_wrong_name_or_value_is_refused_with_and_without_an_engine",
        ),
    },
    "docs/architecture.md": {
        "| L0 | `identity_schema` |": _L0_WHOLE,
        "It claims the directory (`run/server.lock`": (
            "test_hand_over::test_no_engine_starts_while_a_server_waits_for_the_directory",
            "test_hand_over::test_an_engine_that_does_not_leave_is_named_with_the_next_step",
        ),
        "It never takes over from a running command": (
            "test_hand_over::test_nothing_but_an_engine_is_asked_to_leave",
            "test_hand_over::test_a_server_does_not_take_over_from_a_server",
        ),
        "If the engine dies, it repeats": (
            "test_relay::test_a_request_is_sent_three_times_and_then_fails_as_json_rpc",
        ),
    },
    "docs/failures.md": {
        "| the native engine cannot be loaded": (
            "test_native_choice::test_a_package_that_cannot_be_imported_refuses_the_engine",
            "test_native_choice::test_one_row_that_differs_refuses_the_engine",
            "test_native_choice::test_doctor_says_which_engine_embeds_and_why_the_native_one_does_not",
        ),
        "| a save is wrongly judged a repeat |": (
            "test_writer_keeps::test_only_a_text_that_contains_the_other_joins_it",
        ),
        "| another key is in place": (
            "test_a29_another_key::test_another_key_is_a_stranger_until_the_first_vouches_for_it",
        ),
        "| a transcript is a device": ("test_a13_transcripts::test_only_a_regular_file_of_this_user_is_read",),
        "| killed at any moment of reading a source": (
            "test_knowledge_kill::test_kills_while_a_source_is_read_lose_and_double_nothing",
        ),
        "| an embedder's prompts were changed |": _OTHER_ROWS,
        "| never approved; sealed text lost": (
            "test_a01_unapproved_constitution::test_no_hook_and_no_call_tells_an_unapproved_file",
            "test_a26_older_texts_put_back::test_an_older_text_is_never_served_alone",
        ),
        "| clock goes backwards |": ("test_versions::test_a_clock_that_went_back_ends_no_version_before_it_began",),
        "| Qdrant restarts, loses a node": (
            "test_qdrant_failures::test_a_restart_is_waited_for_and_another_node_is_asked",
            "test_qdrant_failures::test_a_server_that_answers_nothing_is_given_up_within_the_limit",
        ),
        "| a document cannot be read": ("test_knowledge::test_a_document_that_breaks_its_parser_is_a_sentence",),
        "| a source cannot be read": _SOURCE_AWAY,
        "| an item of a batch can never succeed": (
            "test_http_v1::test_a_batch_is_worked_off_once_however_often_it_is_sent",
        ),
        "| a token issuer is unreachable": ("test_jwt::test_an_issuer_that_is_away_is_no_wrong_token",),
    },
    "docs/index.md": {
        "| a session should run without memory |": (
            "test_without_memory::test_a_session_without_memory_is_told_and_keeps_nothing_while_another_goes_on",
        ),
    },
    "docs/comparison.md": {
        "Your questions need facts inferred": (
            "test_extraction::test_what_is_worth_keeping_is_kept_as_it_was_said",
            "test_extraction_model::test_a_quote_that_nobody_said_counts_for_nothing",
        ),
        "The tools' schemas of our standard profile": (
            "test_tool_specs::test_with_its_annotations_a_list_costs_what_is_promised_as_it_is_sent",
        ),
    },
    "docs/context.md": {
        "**After a compaction** a conversation gets back L0": (
            "test_compaction::test_a_compacted_session_gets_its_own_decisions_and_commands_back",
            "test_compaction::test_after_a_compaction_the_start_brings_the_session_back_within_400_tokens",
            "memory_anchor.hooks.brief.COMPACTED_TOKENS=400",
        ),
        "**collect** what is always included": (
            "test_context_whole::test_a_context_recalls_what_was_saved_logged_and_set",
        ),
        "| prefix | constitution |": _L0_WHOLE,
        "The text never exceeds the budget": _BUDGET,
        "L0 and L1 are always included": (
            "test_context::test_without_the_store_the_constitution_and_the_active_context_stay",
        ),
        "System messages, the constitution and the last 2": (
            "test_pruning::test_whatever_is_given_up_the_prompt_stays_whole_and_the_input_untouched",
            "test_pruning::test_system_messages_stay_wherever_they_stand",
        ),
        "`minimal` shows the memory group": (
            "test_pruning::test_the_tool_profile_narrows_step_by_step_and_keeps_what_the_messages_call",
        ),
        "`memory_anchor.extensions.prompts.profiles.strict_schema": (
            "test_strict_schema::test_a_name_that_another_name_asks_for_is_declared",
        ),
    },
    "docs/dashboard.md": {
        "| page weight, gzipped": ("test_dashboard::test_every_page_answers_in_its_language_and_is_light",),
    },
    "docs/devices.md": {
        "`memory-anchor sync status` has one sentence": (
            "test_devices::test_a_torn_missing_swapped_or_foreign_segment_waits_in_one_sentence",
        ),
        "| a kill at any moment of a sync |": (
            "test_devices_kill::test_a_device_killed_in_the_middle_of_a_sync_goes_on",
        ),
        "What the revoked device wrote until now": (
            "test_devices::test_a_revoked_device_counts_no_more_and_opens_nothing_new",
            "test_sync_attacks::test_what_a_revoked_device_writes_with_the_keys_it_kept_is_not_taken",
        ),
        "In the user's settings file (a project's file cannot": (
            "test_settings::test_a_projects_own_file_cannot_redirect_or_loosen",
        ),
    },
    "docs/sessions.md": {
        "What stands there is a quotation": ("test_sessions::test_session_passages_stand_behind_memories",),
        "Never read: thinking": ("test_sessions::test_thinking_and_what_the_client_inserted_are_never_read",),
        "At most three passages a session": ("memory_anchor.extensions.sessions.search.OF_A_SESSION=3",),
        "Nothing that was proposed is active without a human": (
            "test_session_proposals::test_nothing_is_active_whatever_the_gate_says",
        ),
        "At most 40 wait in a project": ("memory_anchor.extensions.sessions.proposing.WAITING_MAX=40",),
        "Long, marked or quoted text is nobody's word": (
            "test_session_proposals::test_what_recurs_is_proposed_as_a_procedure_and_pasted_steps_are_none",
            "test_session_proposals::test_a_persons_decision_is_proposed_and_no_task_question_or_pasted_line",
        ),
        "Adopting and asking never embed a passage": (
            "test_session_meaning::test_nothing_is_embedded_by_adopting_or_asking_and_requests_go_first",
        ),
        "A database with a log (WAL: opencode, Goose)": (
            "test_agent_readers::test_a_database_is_read_while_its_client_writes_and_nothing_of_it_changes",
            "test_agent_readers::test_what_a_client_has_only_in_its_log_is_read_and_the_log_is_left",
            "test_agent_readers::test_a_database_without_a_log_that_changes_meanwhile_is_read_again",
            "memory_anchor.adapters.client_database.TRIES=3",
        ),
        "Passages are never sent to an embedder": (
            "test_session_meaning::test_transcripts_go_to_no_embedder_behind_an_api",
        ),
        "| a foreign format, a newer version": (
            "test_sessions::test_foreign_files_links_and_odd_clocks_are_told_and_the_rest_is_read",
            "test_sessions::test_what_a_version_could_not_read_is_read_again_by_the_next",
        ),
        "Deleted is what is gone": (
            "test_agent_readers::test_what_is_no_longer_chosen_is_not_gone",
            "test_agent_readers::test_what_cannot_be_looked_into_is_not_gone",
            "test_agent_readers::test_a_file_that_comes_back_is_there",
        ),
        "| a value of another form": (
            "test_agent_readers::test_an_odd_line_of_a_transcript_costs_itself",
            "test_agent_readers::test_a_format_that_is_not_known_is_one_line",
        ),
    },
    "docs/knowledge.md": {
        "A change is read at the latest": (
            "test_knowledge::test_what_changed_while_an_engine_runs_is_noticed_behind_a_search",
        ),
        "Text is split by headings and functions": (
            "test_passages::test_no_sentence_is_cut",
            "test_passages::test_a_fence_a_row_and_a_function_are_never_cut",
        ),
        "In a sequence of short passages": (
            "test_knowledge_series::test_a_short_passage_is_found_by_what_stands_before_it",
        ),
        "If nothing in memory answers": (
            "test_knowledge::test_knowledge_joins_a_search_where_no_memory_answers_and_is_labelled",
        ),
        "An answer has at most three weak passages": (
            "test_knowledge_walk::test_few_weak_passages_are_shown_unless_they_are_in_another_language",
        ),
        "A passage that was split at an important place": (
            "test_knowledge_beside::test_a_passage_cut_from_its_sections_head_brings_the_end_of_the_one_before",
            "memory_anchor.extensions.knowledge.search.NEIGHBOUR_BYTES=600",
        ),
        "The data for ranking is kept in memory": ("memory_anchor.extensions.knowledge.index.LOADED_MAX=120000",),
        "A source that cannot be read is retried six times": _SOURCE_AWAY,
        "One over which the engine ended twice": (
            "test_a09_a_source_is_set_aside::"
            "test_a_source_that_ended_two_processes_is_set_aside_and_a_human_takes_it_up_again",
        ),
        "An engine checks folders and checkouts": (
            *_RESCAN,
            "memory_anchor.extensions.knowledge.library.RESCAN_SHARE=50",
        ),
        "Search: candidates by meaning, by words": _RESCAN,
    },
    "docs/lorebook.md": {
        "A book that a human adds": (
            "test_lorebook_commands::test_a_humans_book_is_semi_trusted_and_only_a_human_replaces_or_removes_it",
        ),
        "**An entry is activated**": (
            "test_lorebook_scan::test_a_disabled_entry_is_not_admitted_because_it_is_constant",
        ),
    },
    "docs/qdrant.md": {
        "The memories themselves are in the database": (
            "test_qdrant_index::test_while_the_index_does_not_answer_the_rows_are_searched",
        ),
        "`memory-anchor doctor` says how far": (
            "test_qdrant_failures::test_each_answer_is_one_sentence_with_the_cure",
        ),
        "| resident memory | 269 MiB": ("scripts/bench_qdrant.py",),
        "| disk, resident memory | 3.3 GB": ("scripts/bench_qdrant.py",),
        "| disk, resident memory | 3.7 GB": ("scripts/bench_qdrant.py",),
        "**Durability**: nothing": ("test_search_index::test_after_any_writes_and_any_stop_the_index_is_the_store",),
        "One that is of another memory": (
            "test_qdrant_index::test_collections_of_an_earlier_release_stay_as_they_are",
            "test_qdrant_index::test_collections_of_another_database_stay_as_they_are",
        ),
    },
    "docs/repair.md": {
        "the rows of the database, around the pages": (
            "test_upgrade::test_a_database_with_unreadable_pages_is_salvaged_around_them",
        ),
        "Below `store.reserve_mb` (64)": ("test_keep_damage::test_a_disk_below_the_reserve_refuses_before_it_writes",),
        "Nothing acknowledged is lost": (
            "test_little_room::test_a_disk_that_fills_while_writing_loses_nothing_acknowledged",
        ),
        "The newest seven are kept": (
            "test_nightly::test_each_night_makes_one_and_seven_are_kept",
            "test_nightly::test_backups_take_a_bounded_share_of_the_disk",
        ),
        "| `backup.keep` |": ("test_nightly::test_each_night_makes_one_and_seven_are_kept",),
        "Storing in 16 bits changes a number": (
            "test_doctor_cures::test_a_vector_that_is_not_its_texts_is_named_and_made_anew",
            "memory_anchor.admin.checks.TOLERANCE=3e-05",
        ),
        "| `constitution.yaml` cannot be read |": (
            "test_cures_by_hand::test_a_constitution_that_cannot_be_read",
            "test_cures_by_hand::test_a_constitution_that_never_could_be_read",
        ),
        "| what is left of the approved texts": (
            "test_cures_by_hand::test_an_approval_that_somebody_made_up_in_the_audit_trail",
        ),
        "| the folder cannot be written": ("test_cures_by_hand::test_a_data_folder_that_cannot_be_written",),
        "Pickles (used by mem0's vector store)": ("test_promises::test_nothing_in_the_package_can_open_a_pickle",),
    },
    "docs/replicas.md": {
        "| a data directory has a key or texts": (
            "test_shared_files::test_a_replica_at_another_database_deletes_none_of_its_own_files",
        ),
        "Two servers cannot have one data directory": (
            "test_replicas::test_a_second_server_on_one_data_directory_is_refused_and_says_what_replicas_need",
        ),
    },
    "docs/retrieval.md": {
        "**Threads.** A call has its own memory": (
            "test_native_engine::test_many_threads_share_one_engine_until_it_is_closed",
        ),
        "Without a topic nothing is blended": ("test_lens_and_rerank::test_without_a_topic_or_a_weight_nothing_bends",),
        "An answer always has the best there is": _WEAK,
        "**Tags**: at most 0.05": ("memory_anchor.recall.ranking.RankingWeights.tags=0.05",),
        "**Priors** of at most 0.03": (
            "memory_anchor.recall.ranking.RankingWeights.prior=0.03",
            "test_search::test_importance_breaks_near_ties_and_never_buries_a_better_match",
        ),
        "Both sides of a dispute are shown together": (
            "test_answers::test_disputed_memories_are_shown_together",
            "test_relevance::test_a_dispute_never_removes_a_better_memory",
        ),
        "A consolidated story and the events": (
            "test_answers::test_a_story_stands_in_the_places_of_what_is_folded_under_it",
        ),
        "For other queries, the newer of two": (
            "test_recency::test_of_two_that_answer_alike_the_newer_comes_first",
            "test_recency::test_what_follows_in_a_conversation_is_near_by_its_vector_and_not_newer",
            "memory_anchor.recall.ranking.RankingWeights.newer=0.03",
        ),
        "The newest 40 memories of a layer": (
            "test_recency::test_what_was_just_written_is_found_by_any_words",
            "memory_anchor.recall.candidates.JUST_WRITTEN=40",
        ),
        "| a weekday alone, a calendar date": ("test_timesaid::test_a_time_filters_only_ranks_or_is_not_read",),
        "A search asks the API once": (
            "test_embedding_fallback::test_a_waiting_caller_has_one_short_try",
            "test_api_embedders::test_an_api_that_keeps_failing_is_left_alone_for_a_while",
        ),
        "Vectors of two models are never compared": _OTHER_ROWS,
        "`retrieval.weights.NAME` overrides any weight": (
            "test_search::test_a_cached_answer_lives_until_a_write",
            "test_answers::test_an_expired_event_is_no_answer_however_lately_it_was_one",
            "test_answers::test_today_is_over_at_the_readers_midnight",
        ),
        "The hook shows at most four lines": ("memory_anchor.hooks.brief.PROMPT_LINES=4",),
        "| more training prompts, a lower threshold": ("scripts/bench_unasked.py",),
        "**The brief** of a conversation's first prompt": ("scripts/bench_brief.py",),
        "A write during loading overrides": ("test_candidates::test_a_store_that_others_write_to_is_asked_every_time",),
        "L4 by a search's relevance model)": ("test_brief::test_a_brief_stays_below_its_tokens",),
        "| advises the command": ("test_at_the_act::test_the_act_is_matched_and_not_its_tool",),
        "| names or cites a file, or a folder": (
            "test_at_the_act::test_a_known_trap_of_a_file_is_told_before_it_is_edited",
        ),
        "At most two lines, each once a conversation": (
            "test_at_the_act::test_a_known_trap_of_a_command_is_told_once_before_it_runs",
            "memory_anchor.hooks.at_the_act.WARNINGS=2",
        ),
        "Later prompts: four lines": (
            "test_moments::test_no_memory_is_brought_up_twice_in_a_conversation",
            "memory_anchor.hooks.brief.PROMPT_LINES=4",
        ),
        "A memory shown ten times and never used": (
            "test_used_memories::test_what_is_shown_ten_times_and_never_used_is_held_back",
            "test_used_memories::test_an_unused_memory_is_shown_where_it_is_likelier_right_than_not",
        ),
    },
    "docs/security.md": {
        "| an agent with a shell, as the same user |": (
            "test_cli::test_without_a_terminal_nobody_counts_as_human",
            "test_plugin::test_no_command_of_the_plugin_approves",
            "test_a06_environment::test_an_engine_of_the_users_own_directory_takes_nothing_from_the_environment",
        ),
        "`init` refuses to create one": (
            "test_a29_another_key::test_another_key_is_a_stranger_until_the_first_vouches_for_it",
            "test_a29_another_key::test_every_start_tells_of_another_key_and_init_makes_none",
        ),
        "**Files.** Everything read or written": (
            "test_a24_a25_operations_of_a_stranger::test_no_link_on_the_way_is_followed",
            "test_a24_a25_operations_of_a_stranger::test_a_folder_swapped_for_a_link_while_it_is_read_leads_nowhere",
        ),
        "A cited file may be behind a link": ("test_freshness::test_a_working_tree_is_read_inside_its_root_only",),
        "**through the gate**": ("test_facts::test_confidence_decides_what_becomes_of_a_fact",),
        "If one of these knows of a newer text": (
            "test_a26_older_texts_put_back::test_an_older_text_is_never_served_alone",
        ),
        "A trail that was copied from another": (
            "test_a26_planted_in_the_archive::test_a_copied_trail_of_another_project_is_no_lasting_denial",
        ),
        "A secret and a `<private>` part": (
            "test_a19_on_disk::test_no_file_of_the_data_folder_holds_a_secret_that_went_through_a_door",
            "test_a19_every_setting::test_no_file_and_no_wire_has_a_secret_with_every_setting_that_writes",
        ),
        "| a power cut, a full disk": (
            "test_power_damage::test_a_flipped_bit_is_named_or_harmless",
            "test_little_room::test_a_disk_that_fills_while_writing_loses_nothing_acknowledged",
        ),
        "| sent with each connection | never sent |": (
            "test_a06_environment::test_an_engine_of_the_users_own_directory_takes_nothing_from_the_environment",
        ),
        "A backup is always a new file": (
            "test_a15_restore_and_backup::test_a_backup_is_never_written_over_what_is_there",
        ),
        "`init` shows the text before the passphrase": (
            "test_n08_init_asks_for_the_goal::test_a_placeholder_is_never_approved",
        ),
        "More than 10,000 versions or 4 million": (
            "memory_anchor.use_cases.maintenance.PREVIEW_MAX=10000",
            "memory_anchor.use_cases.maintenance.PREVIEW_CHARS=4000000",
        ),
        "Signatures of earlier versions": (
            "test_earlier_signatures::test_what_was_approved_before_is_in_force_and_can_be_changed",
            "test_earlier_signatures::test_access_keys_made_before_open_what_they_opened",
        ),
        "So Git never reads that configuration": _NOTHING_RUNS,
        "HEAD and remotes are small files": (*_NOTHING_RUNS, *_GIT),
        "**Client input**: a hook's payload": (
            "test_a13_transcripts::test_a_hook_reads_its_client_within_bounds",
            "test_access_keys::test_a_hundred_megabytes_are_refused_before_they_are_read",
            "memory_anchor.runtime.wire.MAX_LINE_BYTES=16777216",
        ),
        "**Connections**: half of the remaining": (
            "test_a18_connections::test_silent_connections_make_room_for_one_that_asks",
            "memory_anchor.runtime.connections.MAX_CONNECTIONS=512",
        ),
        "Failures are logged with their location": (
            "test_mcp::test_a_bug_says_neither_to_the_client_nor_to_the_log_what_was_remembered",
        ),
        "**nothing that waits for the user**": (
            "test_a23_an_agent_takes_nothing_from_a_human::test_ask_user_asks_the_user",
            "test_conflict_policy::test_the_policy_of_a_type_settles_its_contradictions",
        ),
        "What a bridge answers before an engine is loaded": (
            "test_memory_processes::test_what_an_agent_writes_into_a_recorded_handshake_is_told_to_nobody",
        ),
        "Every expression over a user's text": (
            "test_a10_text_is_linear::test_no_expression_repeats_without_end_what_something_behind_may_refuse",
            "test_a10_text_is_linear::test_every_function_reads_the_pieces_of_every_expression_in_50_ms",
        ),
        "A text cannot move a cursor": ("test_terminal::test_no_command_prints_a_stored_sign_that_a_terminal_obeys",),
        "**A message about a refused value**": (
            "test_requests::test_a_refused_value_is_shown_cleaned_and_in_at_most_40_characters",
        ),
        "**Only a human grants trust.**": ("test_knowledge::test_only_a_human_trusts_a_source",),
        "A commit message cannot pass": ("test_knowledge::test_a_message_cannot_pass_for_another_commit",),
        "**Nothing outside of a source's folder": (
            "test_knowledge::test_every_bad_file_is_one_sentence_and_the_rest_goes_in",
            "test_knowledge::test_an_agent_reads_no_other_place_and_runs_no_command_by_it",
            "test_knowledge::test_the_memorys_own_files_are_no_source",
        ),
        "**A session without memory.**": (
            "test_without_memory::test_a_session_without_memory_is_told_and_keeps_nothing_while_another_goes_on",
        ),
    },
    "docs/store.md": {
        "The saved mirror is never believed": ("test_mirror::test_a_saved_mirror_is_used_as_far_as_it_is_the_stores",),
        "| readers | a pool of connections": ("memory_anchor.store.database.POOL_MAX=16",),
        "They are not synced, and never ahead of the log": ("test_power_damage::test_a_torn_log_is_named",),
        "Below `store.reserve_mb` nothing is added": (
            "test_keep_damage::test_a_disk_below_the_reserve_refuses_before_it_writes",
            "test_durability::test_a_data_directory_that_was_removed_ends_its_users_loudly",
        ),
        "Under `batch` a COMMIT returns at once": (
            "test_durability::test_a_database_under_batch_answers_at_once_and_syncs_its_log_within_its_bound",
        ),
        "| the file is removed or replaced": (
            "test_durability::test_a_data_directory_that_was_removed_ends_its_users_loudly",
        ),
        "| COMMIT fails |": ("test_group_commit::test_exactly_the_units_that_returned_are_stored",),
        "`doctor --salvage` reads a damaged database row by row": (
            "test_upgrade::test_a_damaged_database_is_salvaged_row_by_row",
        ),
        "| pages of the file cannot be read |": (
            "test_upgrade::test_a_database_with_unreadable_pages_is_salvaged_around_them",
        ),
        "A version and its line stand or fall together": (
            "test_audit_rows::test_a_unit_that_fails_takes_its_record_with_it",
        ),
    },
    "docs/team.md": {
        "| `writer` |": ("test_access_keys::test_each_role_may_what_the_table_says_and_nothing_else", *_RIGHTS),
        "## What is logged, and what never is": ("test_access_keys::test_no_file_and_no_log_line_holds_a_key",),
        "Never: keys, tokens": (
            "test_access_keys::test_no_file_and_no_log_line_holds_a_key",
            "test_http_v1::test_what_is_counted_names_no_account_and_no_key",
        ),
        "**An issuer's token.**": (
            "test_jwt::test_an_issuer_that_is_away_is_no_wrong_token",
            "memory_anchor.extensions.service.issuer.ASK_AGAIN_S=10.0",
        ),
    },
    "docs/time.md": {
        "Only a human's `purge` ever erases": _ERASING,
        "So strength is monotone": (
            "test_activation::test_strength_is_monotone_in_activation",
            "test_activation::test_a_memory_never_used_again_fades_by_its_types_half_life",
        ),
        "| episode, 2 / 5 / 10 / 30 days old": ("test_activation::test_strength_follows_the_documented_table",),
        "| workflow / preference / instruction, 14": ("test_activation::test_strength_follows_the_documented_table",),
        "| instruction, 100 days": ("test_activation::test_strength_follows_the_documented_table",),
        "Each memory differs from the formula": (
            "test_activation::test_noise_is_the_same_for_all_of_a_memorys_life_and_has_the_stated_spread",
            "test_activation::test_two_of_one_kind_and_age_show_about_the_same_strength",
        ),
        "**Use.** Fetching, citing": (
            "test_activation::test_appearing_in_results_counts_less_than_being_used_and_is_bounded",
        ),
        "Counts are collected in the process": ("test_usage::test_reading_writes_nothing_until_the_flush",),
        "It is never archived for that": (
            "test_consolidation::test_a_fact_is_marked_to_verify_and_unmarked_when_corroborated",
        ),
        "Forgetting archives and never erases": ("test_forgetting::test_a_faded_event_is_archived_and_never_erased",),
        "One night archives at most 2 %": (
            "test_forgetting::test_one_night_archives_at_most_the_cap_and_says_so",
            "test_forgetting::test_a_store_of_events_alone_loses_what_it_gains_and_no_more",
        ),
        "It is written only if it costs at most 0.8": (
            "test_consolidation::test_without_a_model_only_what_gets_shorter_is_told_and_in_order",
        ),
        "An agent cannot undo": ("test_undo::test_an_agent_takes_back_nothing_that_a_human_wrote_or_pinned",),
        "It searches what only humans change": (
            "test_purge_beyond_the_store::test_how_tos_and_the_constitution_that_quote_it_are_named",
        ),
        "If records or the whole file are cut off": (
            "test_audit_gaps::test_records_cut_off_stay_missed_after_later_writes",
        ),
        "On recall it is **fresh**": (
            "test_answer_freshness::test_nothing_is_ever_hidden_and_what_stands_keeps_its_order",
        ),
        "That costs two to four Git calls": (*_GIT, "test_freshness::test_a_vanished_file_is_sought_once_a_minute"),
        "| active memories at most |": ("scripts/bench_year.py",),
    },
    "docs/write-path.md": {
        "| `extraction.min_turns` |": ("test_agent_settings::test_a_short_conversation_is_left_alone",),
        "If a text is a clause of a stored sentence": (
            "test_writer_keeps::test_what_is_not_proven_to_be_covered_is_kept",
        ),
        "| `keep_old` |": (
            "test_conflict_policy::test_the_policy_of_a_type_settles_its_contradictions",
            "test_conflict_policy::test_a_contradiction_that_was_turned_away_does_not_strengthen_what_stands",
        ),
        "A text of which only placeholders": (
            "test_facts::test_nothing_is_extracted_of_a_secret_alone",
            "test_mcp::test_a_secret_alone_is_turned_away_by_every_tool_that_writes",
        ),
        "The protection is that recalled text is fenced": _GATE,
        "The form alone selects the half": ("memory_anchor.ingest.extraction.MAX_EMBEDDED=240",),
        "An assistant's claim always waits": ("test_extraction::test_an_assistants_word_is_a_claim_that_waits",),
        "Without the bundled embedder": (
            "test_extraction::test_another_embedders_rows_are_not_read_and_the_form_alone_decides",
        ),
        "`memory-anchor profile` and the resource": (
            "test_profile::test_the_profile_is_one_page_and_each_line_cites_a_live_fact",
            "memory_anchor.ingest.profile.PAGE_LINES=30",
            "memory_anchor.ingest.profile.SECTION_LINES=6",
        ),
        "It is computed on request, so it is never": ("test_profile::test_each_project_and_account_has_its_own_page",),
        "| `extraction.trigger` |": ("test_agent_settings::test_mode_and_trigger_decide_when_a_transcript_is_read",),
        "**First person.** The next prompt": (
            "test_agent_settings::test_by_default_an_agent_is_asked_once_where_the_small_model_saw_candidates",
        ),
        "It never ends, rewrites or joins a memory": (
            "test_relations::test_no_true_fact_of_the_unseen_half_is_proven_over",
            "test_writer_keeps::test_only_a_text_that_contains_the_other_joins_it",
        ),
        "| a stored text contains all of it |": (
            "test_writer_keeps::test_an_exact_repeat_raises_priority_by_ten_up_to_two_hundred",
        ),
        "A pinned memory, a document's claim": ("test_reconcile::test_what_may_not_displace_a_memory_asks",),
        "A pair is compared once per version": (
            "test_disagreements::test_a_pair_is_compared_once_a_version",
            "test_disagreements::test_a_full_queue_drops_and_never_grows",
        ),
        "A language model may clear a pair": ("test_disagreements::test_a_model_may_say_that_it_is_no_contradiction",),
        "With a language model, neighbours are shown numbered": (
            "test_reconcile_model::test_stored_text_is_shown_fenced_and_numbered",
            "test_reconcile_model::test_an_answer_that_does_not_fit_falls_back_to_rules_and_says_so",
        ),
        "Each write stores its answer in the same upsert": (
            "test_idempotence::test_a_tool_called_again_gets_its_first_answer",
        ),
        "At most 12, four of a kind": _LINKS,
        "At most two are added": _LINKED,
        "Of an observation `author` is kept": (
            "test_observation::test_author_and_time_of_an_observation_are_kept",
            "test_observation::test_a_file_may_hold_several_observations",
        ),
        "An exact repeat that brings new tags": (
            "test_observation::test_a_repeat_that_brings_tags_or_files_adds_them",
        ),
        "It only runs in the background": (
            "test_command_model::test_it_is_never_asked_inside_an_agents_call",
            "test_command_model::test_runs_a_day_and_the_size_of_a_text_are_limited",
        ),
        "Failure: no facts, no lines": ("test_profile::test_the_profile_is_one_page_and_each_line_cites_a_live_fact",),
    },
}

NO_PROMISE: dict[str, tuple[str, ...]] = {
    "docs/index.md": ("| nothing is saved any more |",),
    # What is out of reach, what others do, what was tried or measured once: nobody is promised anything.
    "docs/comparison.md": ("Contradictions in sentences that share no word",),
    "docs/dashboard.md": ("[security.md](security.md) says what a browser page",),
    "docs/devices.md": ("Out of reach: earlier versions", "If you lose the passphrase"),
    "docs/knowledge.md": ("Tried as well and not used", "What brought nothing on the 60"),
    "docs/qdrant.md": ("**Erasing** (`purge`)",),
    "docs/repair.md": ("`doctor` says that memories cannot be read",),
    "docs/retrieval.md": (
        "If both languages are in one store",
        "**The nearest is not always near**",
        "A linear model over 55 features",
        "`scripts/train_relevance.py --reminding",
        "Memory to memory, on 56 hand-written pairs",
        "From 0.30 on two memories are related",
        "**What a cross-encoder gains here",
        "What the blend can do at its share",
    ),
    "docs/security.md": ("| a cloned or unpacked repository |", "An archive of a **public** repository"),
    "docs/team.md": ("If a client cannot send headers",),
    "docs/time.md": ("It says what it cannot reach", "| no model, en; zh |"),
    "docs/write-path.md": (
        'A brief yes to a proposal ("I suggest that we always',
        "Secrets that cannot be recognised at all",
        "`test` has another style than `dev`",
        "Of 24 written to test it",
        "What it cannot know",
        "A link to a purged memory disappears",
    ),
}
