#include "runtime/ending/departure.hpp"

#include <algorithm>

namespace hvd::runtime {

void Departure::connected() {
  if (phase_ == Phase::connecting) phase_ = Phase::running;
}

void Departure::start_failed(const Error& error) {
  if (!start_failure_) start_failure_ = error;
}

void Departure::stop_requested(std::string_view reason) {
  if (!request_) request_ = reason;
}

void Departure::log_ended(Rank by, std::string_view reason, std::string_view id) {
  if (agreed_) return;
  std::string who = by == settings_.me ? "this rank" : settings_.describe(by);
  std::string why = reason.empty() ? "" : ": " + std::string(reason);
  is_stopped_by_another_ = by != settings_.me && reason.empty();
  agreed_ =
      Error{ErrorCode::shut_down, "Horovod has been shut down by " + who + why +
                                      ". An operation that not all ranks had submitted before cannot be carried out; "
                                      "hvd.shutdown() and hvd.init() start anew"};
  agreed_->id = id;
}

void Departure::batch_failed(const Error& error) {
  if (failed_batch_) return;
  failed_batch_ = error;
  if (error.is_a_consequence) cause_due_ = settings_.now() + settings_.time_for_cause;
}

void Departure::leader_ends(const Error& verdict) {
  if (!verdict_) verdict_ = verdict;
}

void Departure::loss_announced(Rank lost, std::string_view why) {
  if (!announced_) announced_ = Loss{lost, std::string(why)};
}

void Departure::loss_noticed(Rank lost) {
  if (noticed_) return;
  noticed_ = Loss{lost, settings_.describe(lost) +
                            " ended or was killed without hvd.shutdown(); what was in flight with it is lost. "
                            "Look at that rank's own output for the cause"};
}

void Departure::stalled(const Error& error) {
  if (!stall_) stall_ = error;
}

Departure::Step Departure::next() {
  switch (phase_) {
    case Phase::connecting:
    case Phase::running:
      if (decide()) return next();
      if (!request_ || answer_due_) return wait_in_time();
      answer_due_ = settings_.now() + answer_time;
      return SendRequest{*request_};
    case Phase::warning: phase_ = Phase::telling; return Warn{reason_->message};
    case Phase::announcing: phase_ = Phase::telling; return AnnounceLoss{lost_, reason_->message};
    case Phase::telling:
      phase_ = Phase::held_back;
      if (is_in_order_) return Leave{};
      return TellNeighbours{lost_, reason_->message};
    case Phase::held_back:
      if (is_stopped_by_another_ && reason_->code == ErrorCode::shut_down && !request_ && !settings_.is_elastic) {
        if (!held_until_) held_until_ = settings_.now() + time_to_end;
        if (settings_.now() < *held_until_) return WaitUntil{*held_until_};
      }
      phase_ = Phase::ended;
      return End{*reason_};
    case Phase::ended: break;
  }
  return GoOn{};
}

// Decides whether the rank ends now, and why. If there are several reasons, the first one checked here counts.
bool Departure::decide() {
  bool is_running = phase_ == Phase::running;
  if (start_failure_ && !is_running) {
    end(*start_failure_);
  } else if (agreed_ && is_work_done_ && is_running) {
    is_in_order_ = true;
    end(*agreed_);
  } else if (verdict_) {
    end(*verdict_);
  } else if (const auto& loss = announced_ ? announced_ : noticed_) {
    end({ErrorCode::peer_lost, loss->why});
  } else if (failed_batch_ && !is_cause_unknown()) {
    end(*failed_batch_);
  } else if (stall_) {
    end(*stall_);
  } else if (auto due = patience_ends(); due && settings_.now() >= *due) {
    end({ErrorCode::timeout,
         agreed_ ? "the shutdown was agreed, but " + settings_.describe_work() + "; this rank left alone"
                 : settings_.describe_leader() +
                       " did not answer the request to shut down within 10 s; this rank left alone"});
    phase_ = Phase::warning;  // the reason is logged, because hvd_shutdown cannot return it
  }
  return reason_.has_value();
}

void Departure::end(const Error& reason) {
  bool refuses_to_start = phase_ == Phase::connecting && reason.code != ErrorCode::timeout;
  bool is_mine_alone = reason.code == ErrorCode::out_of_memory || reason.code == ErrorCode::system;
  bool concerns_all = reason.code == ErrorCode::peer_lost || refuses_to_start || is_mine_alone;
  phase_ = concerns_all ? Phase::announcing : Phase::telling;
  reason_ = reason;
  lost_ = whose();
}

// Returns the rank that others are told of. If no rank was lost, that is this rank.
Rank Departure::whose() const {
  if (announced_) return announced_->rank;
  return noticed_ ? noticed_->rank : settings_.me;
}

// True while another rank still has time to announce why the batch failed.
bool Departure::is_cause_unknown() const {
  return cause_due_ && settings_.now() < *cause_due_;
}

// Returns when a rank that has asked to stop leaves alone.
std::optional<Departure::Time> Departure::patience_ends() const {
  if (!answer_due_ || phase_ != Phase::running) return std::nullopt;
  if (!agreed_) return answer_due_;
  Time sent = *answer_due_ - answer_time;
  return std::max(sent, work_moved_) + std::max<Clock::duration>(answer_time, settings_.time_for_cause);
}

Departure::Step Departure::wait_in_time() {
  std::optional<Time> first = cause_due_;
  if (auto due = patience_ends()) first = first ? std::min(*first, *due) : *due;
  if (!first) return GoOn{};
  return WaitUntil{*first};
}

}  // namespace hvd::runtime
