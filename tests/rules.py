"""Each rule of the strategy document, and the tests that hold it.

Both ways: `tests/unit/test_rules.py` checks that every test named here exists, and that every test whose docstring
cites a rule of the strategy (`Rule L2.ttl:`, `Rule 7.1:`, `Strategy`, `Red line`) is named here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    section: str
    says: str
    tests: tuple[str, ...]


RULES = (
    Rule(
        "1.0",
        "five layers, each with its own store, life and way back",
        (
            "test_context::test_a_context_holds_every_layer_in_stable_prefix_then_dynamic_tail",
            "test_mcp::test_every_registered_tool_answers_with_one_line_of_json",
            "test_context_whole::test_a_context_recalls_what_was_saved_logged_and_set",
        ),
    ),
    Rule("1.1", "old terms are accepted on input", ("test_facts::test_an_old_layer_name_is_understood",)),
    Rule(
        "2 L0",
        "only humans write; agents propose",
        (
            "test_facts::test_a_write_to_the_wrong_layer_names_the_right_way",
            "test_proposals::test_made_up_copied_and_repeated_confirmations_do_not_count",
            "test_transfer::test_a_line_claims_nothing_that_its_caller_could_not_do",
        ),
    ),
    Rule(
        "2 L0",
        "a change takes effect after three confirmations (三次审批)",
        (
            "test_proposals::test_three_confirmations_make_a_change_effective_and_two_do_not",
            "test_approval_pty::test_three_approvals_on_a_terminal_make_a_proposal_effective",
        ),
    ),
    Rule(
        "2 L0",
        "typical content: goal, stack, core constraint",
        ("test_identity_schema::test_the_repository_holds_the_three_entries_of_the_strategy",),
    ),
    Rule(
        "2 L0",
        "YAML first; a dynamic supplement in the store would be unsigned, so there is none (docs/security.md)",
        (
            "test_identity_schema::test_an_approved_text_is_served_without_a_warning",
            "test_a04_points_in_the_store::test_a_point_written_into_the_store_is_never_l0",
        ),
    ),
    Rule(
        "2 L0",
        "at most 20 entries",
        (
            "test_identity_schema::test_approval_refuses_a_twenty_first_entry",
            "test_identity_schema::test_init_refuses_a_file_that_is_over_the_limits_or_broken",
        ),
    ),
    Rule(
        "2 L0",
        "red line: identity is never lost because something else fails",
        (
            "test_identity_schema::test_a_missing_file_or_a_folder_in_its_place_loses_nothing",
            "test_identity_schema::test_a_half_written_file_never_shortens_an_approved_identity",
            "test_context::test_without_the_store_the_constitution_and_the_active_context_stay",
        ),
    ),
    Rule(
        "2 L0",
        "loaded in full at the start of every conversation, never searched",
        (
            "test_mcp::test_instructions_carry_the_constitution_of_the_callers_own_project",
            "test_context::test_the_constitution_is_whole_even_where_it_alone_exceeds_the_budget",
        ),
    ),
    Rule(
        "2 L1",
        "in the process, never in Qdrant, one hour, per conversation, bounded",
        (
            "test_active_context::test_a_value_is_kept_for_its_conversation_alone",
            "test_active_context::test_a_value_ends_at_its_own_deadline",
            "test_active_context::test_nothing_of_it_is_written_to_the_store",
            "test_active_context::test_keys_are_bounded",
            "test_active_context::test_a_conversation_that_must_make_room_becomes_an_event",
            "test_active_context::test_a_value_that_cannot_be_read_costs_no_other",
        ),
    ),
    Rule(
        "2 L2",
        "when is required; where, who, source, ttl_days",
        (
            "test_events::test_an_event_has_a_when_even_if_nobody_gave_one",
            "test_events::test_an_event_keeps_where_who_and_source",
            "test_ahead::test_a_time_to_live_counts_from_what_happened",
            "test_ahead::test_what_was_over_before_it_was_told_is_archived_and_says_so",
            "test_ahead::test_the_default_time_to_live_ends_nothing_that_is_told_late",
        ),
    ),
    Rule(
        "2 L2",
        "days to live: 7, 30, any, or for ever; expiry archives",
        (
            "test_events::test_an_expired_event_is_archived_and_never_erased",
            "test_events::test_an_event_without_days_to_live_stays",
            "test_search::test_an_expired_event_is_not_an_answer",
            "test_as_of::test_an_expired_event_was_there_until_it_expired",
        ),
    ),
    Rule(
        "2 L2",
        "found by time range and by meaning",
        (
            "test_events::test_events_are_found_by_time_newest_first",
            "test_events::test_events_are_found_by_meaning_within_a_place_and_people",
            "test_events::test_turns_of_one_conversation_keep_their_order_and_context",
            "test_events::test_a_new_process_goes_on_counting_where_the_conversation_stopped",
            "test_events::test_a_repeated_log_without_a_request_id_is_two_events",
        ),
    ),
    Rule(
        "2 L2",
        "promotion keeps the event as the fact's source",
        (
            "test_events::test_a_promoted_event_stays_as_the_source_of_its_fact",
            "test_events::test_promoting_twice_makes_one_fact",
        ),
    ),
    Rule(
        "2 L3",
        "confidence >= 0.9 stored, 0.7 to 0.9 pending, below rejected",
        (
            "test_facts::test_confidence_decides_what_becomes_of_a_fact",
            "test_facts::test_a_claim_counts_only_as_far_as_its_origin",
            "test_facts::test_every_origin_has_its_cap",
            "test_facts::test_what_is_visible_to_the_account_waits_for_a_human",
            "test_facts::test_a_pending_fact_is_found_only_when_asked_for_and_is_marked",
            "test_facts::test_another_origin_saying_the_same_raises_confidence",
        ),
    ),
    Rule(
        "2 L3",
        "a fact is kept for ever and known once",
        (
            "test_facts::test_a_repeat_strengthens_and_never_doubles",
            "test_facts::test_replacing_ends_the_old_fact_and_keeps_it_readable",
            "test_search::test_similar_finds_the_same_fact_in_other_words",
            "test_memory_store::test_superseding_is_one_batch",
            "test_terms::test_a_content_hash_forgives_spacing_and_width_but_not_case",
        ),
    ),
    Rule(
        "2 L4",
        "read from .ai/operations/ in Git; file name plus passages; developers write",
        (
            "test_operations::test_a_task_finds_the_passage_that_says_how",
            "test_operations::test_a_chinese_task_finds_a_chinese_passage",
            "test_operations::test_a_how_question_finds_a_passage_in_the_other_language",
            "test_operations::test_an_order_finds_its_file_in_either_language",
            "test_operations::test_a_heading_without_text_belongs_to_the_part_below_it",
            "test_operations::test_an_edited_file_is_read_again",
            "test_operations::test_a_file_is_read_whole_by_its_name",
            "test_operations::test_an_index_never_comes_before_the_file_it_names",
            "test_operations::test_an_order_brings_up_what_the_question_does",
            "test_operations::test_what_did_not_change_is_embedded_once_whichever_process_asks",
            "test_operations::test_an_engine_that_is_killed_loses_no_finished_rows",
            "test_operations::test_rows_that_may_be_wrong_are_made_again",
        ),
    ),
    Rule(
        "3.1",
        "L1 becomes L2 at the end of the conversation",
        (
            "test_active_context::test_ending_the_session_turns_it_into_one_event",
            "test_active_context::test_a_client_that_goes_away_leaves_its_context_as_an_event",
            "test_active_context::test_closing_the_process_keeps_what_was_in_mind",
            "test_active_context::test_what_could_not_be_logged_stays_in_mind",
            "test_active_context::test_a_conversation_that_cannot_be_logged_keeps_no_other_from_it",
            "test_hooks::test_the_end_of_a_session_turns_active_context_into_one_event",
            "test_memory_processes::test_a_closed_bridge_ends_its_conversation",
            "test_mcp::test_a_client_that_goes_away_leaves_what_it_had_in_mind_as_one_event",
        ),
    ),
    Rule(
        "4.1",
        "the observation's JSON Schema",
        (
            "test_observation::test_the_template_is_what_the_model_says",
            "test_cli::test_an_observation_file_is_stored_as_what_it_says",
        ),
    ),
    Rule("4.2", "the type decides the layer", ("test_facts::test_the_type_decides_the_layer",)),
    Rule(
        "5.2",
        "context budget 500 / 500 / 2000 / 500 / 500",
        (
            "test_context::test_a_section_takes_no_more_than_its_budget",
            "test_context::test_the_question_is_cut_to_its_budget_before_it_is_searched_for",
            "test_context::test_no_context_exceeds_its_budget_unless_the_constitution_alone_does",
        ),
    ),
    Rule(
        "7.1",
        "the five verification queries",
        (
            "test_operations::test_identity_questions_are_answered_from_l0",
            "test_search::test_a_relative_time_filters_and_everything_in_it_answers",
            "test_demo::test_the_demo_answers_every_question_after_a_restart",
        ),
    ),
    Rule(
        "7.2",
        "L0 recall 100 %, L2/L3 at least 80 %",
        ("test_demo::test_the_demo_answers_every_question_after_a_restart",),
    ),
    Rule(
        "8",
        "events do not grow without end; archiving loses nothing",
        (
            "test_forgetting::test_a_faded_event_is_archived_and_never_erased",
            "test_forgetting::test_one_night_archives_at_most_the_cap_and_says_so",
        ),
    ),
)
