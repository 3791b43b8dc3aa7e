"""Mistakes where several servers decide: the quorum; the ordered records of ZooKeeper, etcd and Consul."""

# ruff: noqa: E501 (texts as they stand in the files)
from __future__ import annotations

from patch import Conform, Test, patch

# The quorum --------------------------------------------------------------------------------------

patch(
    "quorum_without_write_back",
    "The token is the largest counter that a quorum answered, whether or not a quorum has it.",
    Test(
        "tests/sim/test_quorum.py::test_no_token_is_given_twice_or_out_of_order",
        (("FENCELOCK_SEEDS", "2000"),),
    ),
    "simulate(",
    (
        "core/quorum.py",
        "            if [*self._counters.values()].count(self.highest) < self.quorum:\n                return WRITE\n",
        "",
    ),
)
patch(
    "quorum_of_those_that_answered",
    "A majority of the nodes that answered is enough.",
    Test(
        "tests/acceptance/test_redlock.py::test_a_majority_that_is_down_is_no_quorum_and_not_a_lock_that_is_held"
    ),
    "DID NOT RAISE",
    (
        "core/quorum.py",
        "        if granted >= self.quorum:\n            if [*self._counters.values()].count(self.highest) < self.quorum:\n",
        "        if granted >= self.quorum or (granted > self._refused and self._all_in()):\n"
        "            if [*self._counters.values()].count(self.highest) < min(granted, self.quorum):\n",
    ),
)
patch(
    "quorum_agrees_with_any_writer",
    "A node agrees to a token that another request wrote.",
    Test("tests/acceptance/test_redlock_scripts.py::test_a_node_agrees_with_one_writer_of_a_token"),
    "somebody else wrote that",
    (
        "backends/redlock/lua/write_back.lua",
        "if counter > token or (counter == token and known[3] ~= owner) then",
        "if counter > token then",
    ),
)
patch(
    "quorum_counts_a_node_that_forgot",
    "A node that was restarted without its memory votes at once.",
    Test("tests/acceptance/test_redlock_kleppmann.py::test_node_restarted_without_its_memory"),
    "two hold the lock",
    (
        "backends/redlock/lua/greet.lua",
        "if not known[1] then\n  return {'blank', run, 0, 0}\nend\n",
        "if not known[1] then\n  redis.call('HSET', memory, 'run', run, 'member', 1, 'founded', 1)\n  return {'member', run, 0, now}\nend\n",
    ),
)
patch(
    "quorum_forgets_the_drift",
    "Nodes keep a lock no longer than its holder believes in it.",
    Test("tests/unit/core/test_quorum.py"),
    "kept(10)",
    ("core/quorum.py", "    return ttl + drift(ttl)\n", "    return ttl\n"),
)

# Ordered records ---------------------------------------------------------------------------------

patch(
    "clean_up_in_the_middle_of_a_step",
    "A record that nobody renewed in time is removed, though a step is under way that comes back with the lock.",
    Test(
        "tests/unit/backends/test_ordered_steps.py::test_a_place_is_not_given_up_while_its_step_is_under_way"
    ),
    "and   3 = <",
    (
        "backends/ordered/renewals.py",
        "            if owner not in self._asking and place.deadline <= self.runtime.now():\n",
        "            if place.deadline <= self.runtime.now():\n",
    ),
)
patch(
    "grant_for_a_place_nobody_knows",
    "The session of a waiter ends while it moves: it is granted, and swept away as a ghost.",
    Test("tests/unit/backends/test_ordered_steps.py::test_a_grant_is_for_a_place_that_the_client_knows"),
    "== ['second']",
    (
        "backends/ordered/queues.py",
        "        return not place.tenure.ended and self._places.get(place.request.owner) is place\n",
        "        return True\n",
    ),
)

patch(
    "whoever_is_called_believes_it",
    "A waiter that hears of a change holds the lock, whoever still stands before it.",
    Test("tests/unit/backends/test_ordered_steps.py::test_a_false_alarm_moves_nothing"),
    "base.Grant object",
    (
        "backends/ordered/queues.py",
        "            if position is None or position >= admitted(queue.records):\n                place.called",
        "            if position is None:\n                place.called",
    ),
)
patch(
    "a_whole_ttl_in_the_session_of_those_who_wait",
    "One that holds where it waits believes in it for its ttl, though that session is shorter.",
    Test(
        "tests/unit/backends/test_ordered_steps.py"
        "::test_one_whose_turn_has_come_holds_where_it_waits_and_moves_with_its_first_renewal"
    ),
    "good_until",
    (
        "backends/ordered/queues.py",
        "min(place.request.ttl, place.deadline - place.asked)",
        "place.request.ttl",
    ),
)
patch(
    "a_shorter_extension_stays_in_the_longer_session",
    "The client counts a shorter ttl; after a crash the store keeps the lock for the longer one.",
    Test("tests/unit/backends/test_ordered_extend.py::test_an_extension_sets_the_deadline_earlier_or_later"),
    "assert 61.0 == 6.0",
    (
        "backends/ordered/renewals.py",
        "        return renewal.exact or is_too_short or not",
        "        return is_too_short or not",
    ),
)
patch(
    "a_renewal_believes_in_the_session_that_its_lease_has_left",
    "A renewal and an extension overlap: the lease counts on a long session, and its record is in a short one.",
    Test(
        "tests/unit/backends/test_ordered_extend.py"
        "::test_a_renewal_that_an_extension_overtakes_does_not_believe_in_its_tenure"
    ),
    "Outcome.RENEWED",
    (
        "backends/ordered/renewals.py",
        "            if not place.stood_still(before):\n",
        "            if False:\n",
    ),
)
patch(
    "an_extension_without_an_answer_is_forgotten",
    "Nobody knows which session the record is in, and a renewal of the one it was in counts.",
    Test(
        "tests/unit/backends/test_ordered_extend.py"
        "::test_an_extension_without_an_answer_is_settled_by_the_next_renewal"
    ),
    "the client believes in another",
    (
        "backends/ordered/places.py",
        "        return self.moves == moves and moves % 2 == 0\n",
        "        return self.moves == moves\n",
    ),
)
patch(
    "closing_wakes_nobody",
    "Closing a client does not end its waits: each goes on until its next heartbeat.",
    Test("tests/unit/backends/test_ordered_extend.py::test_a_wait_ends_when_the_client_is_closed"),
    "TimeoutError",
    (
        "backends/ordered/queues.py",
        "        for place in list(self._places.values()):\n            place.wake(gone=False)\n",
        "        pass\n",
    ),
)
patch(
    "zookeeper_token_is_the_sequence_number",
    "Sequence numbers begin anew when an operator deletes the parent; the czxid does not.",
    Test("tests/acceptance/test_zookeeper_sessions.py::test_tokens_rise_when_an_operator_deletes_everything"),
    "assert 1 > ",
    (
        "backends/zookeeper/store.py",
        "            place.key, place.token = (path,), stat.czxid\n            break\n",
        "            place.key, place.token = (path,), int(path[-10:]) + 1\n            break\n",
    ),
)
RELEASED_IN_A_MOVE = (
    "tests/acceptance/test_zookeeper_sessions.py"
    "::test_a_lease_that_is_released_while_a_renewal_moves_it_leaves_nothing"
)
patch(
    "zookeeper_release_does_not_look_whether_it_was_moved",
    "A renewal moves the znode under the hands of a release, which deletes what was there before.",
    Test(RELEASED_IN_A_MOVE),
    "not within",
    (
        "backends/ordered/queues.py",
        "            if place.key == key:\n                break",
        "            break",
    ),
)
patch(
    "zookeeper_release_does_not_wait_for_a_move",
    "The same, while the move has no answer yet.",
    Test(RELEASED_IN_A_MOVE),
    "not within",
    (
        "backends/zookeeper/store.py",
        "                if owner not in self._unsure:  # asked",
        "                if True:  # asked",
    ),
)
patch(
    "zookeeper_sends_one_request_for_each_byte",
    "After an interrupt between the two, every question waits for the next one.",
    Test("tests/unit/backends/test_zookeeper_wire.py::test_a_request_without_its_byte_goes_with_the_next"),
    "assert 1 == 2",
    (
        "backends/zookeeper/wire.py",
        "        for _ in range(min(len(queue), TOGETHER)):",
        "        for _ in range(min(len(queue), 1)):",
    ),
)
patch(
    "etcd_token_is_the_version",
    "A key's version begins at 1 each time it is made.",
    Conform("etcd", ("tokens_rise_across_releases",)),
    "token 1 follows",
    (
        "backends/etcd/queues.py",
        "pair.key, parts.owner, pair.create_revision, parts.mode",
        "pair.key, parts.owner, pair.version, parts.mode",
    ),
)
patch(
    "consul_ghosts_are_not_swept",
    "A step that Consul takes after its withdrawal stands in line for as long as the session.",
    Test(
        "tests/acceptance/test_consul_sessions.py::test_a_step_that_is_taken_after_its_withdrawal_leaves_no_ghost"
    ),
    "the ghost is gone",
    ("backends/consul/queues.py", "for key, since in list(doubts.items()):", "for key, since in ():"),
)
patch(
    "etcd_withdrawal_overtakes_what_it_undoes",
    "A request that was interrupted is withdrawn on another connection while it is under way.",
    Test("tests/unit/backends/test_interrupted_writes.py::test_etcd_withdraws_what_was_done"),
    "withdrawn before it was done",
    ("backends/etcd/queues.py", "await self._etcd.settle(request.owner, deadline)", "pass"),
)
patch(
    "consul_token_is_the_lock_index",
    "LockIndex falls back to 1 when the key is deleted.",
    Conform("consul", ("tokens_rise_across_releases",)),
    "token 1 follows",
    (
        "backends/consul/queues.py",
        'found["Key"], parts.owner, found["CreateIndex"], parts.mode',
        'found["Key"], parts.owner, found["LockIndex"], parts.mode',
    ),
)
patch(
    "etcd_renewal_does_not_look_at_the_key",
    "A heartbeat of the session renews leases whose keys an operator has deleted.",
    Test("tests/acceptance/test_etcd_sessions.py::test_a_key_that_is_deleted_is_lost_at_the_next_renewal"),
    "the loss is known",
    (
        "backends/ordered/renewals.py",
        "        there = await self._store.present([place for place, _ in pairs], deadline)\n",
        "        there = {place.request.owner for place, _ in pairs}\n",
    ),
)
patch(
    "etcd_session_is_used_after_it_ended",
    "A heartbeat that finds no lease counts as one: a session goes on that etcd has ended.",
    Test(
        "tests/acceptance/test_etcd_sessions.py::test_a_lease_that_is_revoked_is_lost_to_whoever_holds_in_it"
    ),
    "the loss is known",
    ("backends/etcd/queues.py", "        if answer.TTL <= 0:\n            return False\n", ""),
    (
        "backends/ordered/renewals.py",
        "        there = await self._store.present([place for place, _ in pairs], deadline)\n",
        "        there = {place.request.owner for place, _ in pairs}\n",
    ),
)
patch(
    "zookeeper_place_of_a_lost_session_is_taken_up_again",
    "Who stands in line anew stands where its first znode does, for as long as the server keeps that.",
    Test(
        "tests/unit/backends/test_zookeeper_parts.py::test_who_stands_in_line_anew_does_not_stand_where_it_did"
    ),
    "assert",
    (
        "backends/ordered/places.py",
        "range(len(self.records) - 1, -1, -1)",
        "range(len(self.records))",
    ),
)
patch(
    "zookeeper_session_is_used_after_it_expired",
    "Whoever holds in a session that has expired is not told, and believes in it until its ttl.",
    Test(
        "tests/acceptance/test_zookeeper_sessions.py::test_a_session_that_expires_is_lost_to_whoever_holds_in_it_at_once"
    ),
    "the loss is known",
    ("backends/ordered/tenures.py", "            self._lost(place, reason)\n", ""),
)
patch(
    "consul_waiter_without_signs_of_life",
    "Consul's shortest session is ten seconds: a dead waiter's place stays for as long.",
    Test(
        "tests/acceptance/test_consul_sessions.py::test_a_dead_waiter_costs_a_few_seconds_and_not_a_session"
    ),
    "TimeoutError",
    (
        "backends/consul/queues.py",
        "        silent = [record for record in queue.records if self._roll.is_silent(record.session, record.token)]\n",
        "        silent: list[Record] = []\n",
    ),
)

# Sockets -------------------------------------------------------------------------------------------

patch(
    "net_cleanup_overtakes_what_it_undoes",
    "Cleanup does not wait for the answer to the question that was interrupted.",
    Test("tests/unit/net/test_pool.py::test_a_shared_connection_serves_others_while_one_is_settled"),
    "assert",
    ("net/pool.py", "kept = self._kept.get(tag) if self._kept else None", "kept = None"),
)
patch(
    "net_half_a_question_is_followed_by_another",
    "A caller that leaves in the middle of writing leaves the rest to nobody, and the connection to others.",
    Test(
        "tests/unit/net/test_exchange.py::test_a_question_that_is_cut_off_in_the_middle_ends_the_connection_for_all"
    ),
    "no answer in time",
    (
        "net/exchange.py",
        "        except BaseException:\n            self._break()\n            raise\n",
        "        except BaseException:\n            self._is_writing = False\n            raise\n",
    ),
)
patch(
    "net_shared_connection_is_closed_under_its_users",
    "A connection that its pool retires is closed at once, whoever else uses it.",
    Test("tests/unit/net/test_pool.py::test_a_shared_connection_is_closed_by_its_last_user"),
    "Error",
    (
        "net/pool.py",
        "        if not connection.load:\n            connection.close()\n\n    # Exchanges",
        "        connection.close()\n\n    # Exchanges",
    ),
)
patch(
    "net_a_cancelled_task_takes_the_others_questions_along",
    "The task that gathers what all ask in a turn of the loop is cancelled, and sends nothing.",
    Test("tests/unit/net/test_exchange.py::test_what_was_gathered_is_sent_though_its_task_is_cancelled"),
    "assert",
    (
        "net/exchange.py",
        "                if self._sends_gathered():\n                    self._break()\n",
        "                self._is_gathering = False\n",
    ),
)
patch(
    "net_a_handler_speaks_in_the_middle_of_a_question",
    "A signal's handler sends its question on a channel in the middle of another.",
    Test("tests/unit/net/test_channel.py::test_a_question_is_whole_or_the_last_one"),
    "in the middle of one nothing can be sent",
    ("net/channel.py", "            if self._is_speaking:\n", "            if False:\n"),
)
patch(
    "net_lookup_without_a_deadline",
    "A host name is looked up on the caller's thread, for as long as that takes.",
    Test("tests/unit/net/test_lookup.py::test_a_slow_name_service_does_not_move_the_deadline"),
    "DID NOT RAISE",
    (
        "net/lookup.py",
        "            lookup = self._begin(host, port)\n",
        "            return _resolve(host, port, 0)\n",
    ),
)
