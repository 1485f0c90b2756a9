#include "launcher/wire/messages.hpp"

#include <sys/wait.h>

#include "base/records.hpp"

namespace hvd {

template <>
constexpr auto fields_of<launcher::Prepare> = std::tuple(&launcher::Prepare::ranks, &launcher::Prepare::grace_ms,
                                                         &launcher::Prepare::tells_bindings,
                                                         &launcher::Prepare::lifeline,
                                                         &launcher::Prepare::lifeline_token,
                                                         &launcher::Prepare::lifeline_patience_ms,
                                                         &launcher::Prepare::dial_ms);
template <>
constexpr auto fields_of<launcher::StartRank> =
    std::tuple(&launcher::StartRank::rank, &launcher::StartRank::title, &launcher::StartRank::program,
               &launcher::StartRank::command, &launcher::StartRank::environment, &launcher::StartRank::folder,
               &launcher::StartRank::local_rank, &launcher::StartRank::input, &launcher::StartRank::is_site_launcher);
template <>
constexpr auto fields_of<launcher::Input> = std::tuple(&launcher::Input::bytes, &launcher::Input::is_last);
template <>
constexpr auto fields_of<launcher::Ask> = std::tuple();
template <>
constexpr auto fields_of<launcher::Forward> = std::tuple(&launcher::Forward::signal);
template <>
constexpr auto fields_of<launcher::StopRank> = std::tuple(&launcher::StopRank::rank, &launcher::StopRank::signal);
template <>
constexpr auto fields_of<launcher::End> = std::tuple(&launcher::End::signal, &launcher::End::grace_ms);
template <>
constexpr auto fields_of<launcher::Credit> = std::tuple(&launcher::Credit::bytes);
template <>
constexpr auto fields_of<launcher::Dismiss> = std::tuple();
template <>
constexpr auto fields_of<launcher::Ready> = std::tuple(&launcher::Ready::host, &launcher::Ready::node_id,
                                                       &launcher::Ready::process);
template <>
constexpr auto fields_of<launcher::NotReady> = std::tuple(&launcher::NotReady::reason);
template <>
constexpr auto fields_of<launcher::Said> = std::tuple(&launcher::Said::text);
template <>
constexpr auto fields_of<launcher::Started> = std::tuple(&launcher::Started::rank, &launcher::Started::process);
template <>
constexpr auto fields_of<launcher::NotStarted> = std::tuple(&launcher::NotStarted::rank, &launcher::NotStarted::error,
                                                            &launcher::NotStarted::step, &launcher::NotStarted::code);
template <>
constexpr auto fields_of<launcher::Output> = std::tuple(&launcher::Output::rank, &launcher::Output::stream,
                                                        &launcher::Output::bytes);
template <>
constexpr auto fields_of<launcher::InputTaken> = std::tuple(&launcher::InputTaken::bytes,
                                                            &launcher::InputTaken::is_closed);
template <>
constexpr auto fields_of<launcher::Answered> = std::tuple();
template <>
constexpr auto fields_of<launcher::Exited> = std::tuple(&launcher::Exited::rank, &launcher::Exited::wait_status,
                                                        &launcher::Exited::at_ns, &launcher::Exited::group_known,
                                                        &launcher::Exited::oom_kills, &launcher::Exited::limit_bytes,
                                                        &launcher::Exited::group);
template <>
constexpr auto fields_of<launcher::Stopped> = std::tuple(&launcher::Stopped::rank, &launcher::Stopped::signal,
                                                         &launcher::Stopped::process);
template <>
constexpr auto fields_of<launcher::Told> = std::tuple(&launcher::Told::signal);
template <>
constexpr auto fields_of<launcher::AllEnded> = std::tuple();

namespace launcher {

template <typename Message>
void encode(const Message& message, Buffer& out) {
  encode_record(message, out);
}

template <typename Message>
std::optional<Message> decode(ConstBytes content) {
  return decode_record<Message>(content);
}

template void encode(const Order&, Buffer&);
template void encode(const Report&, Buffer&);
template std::optional<Order> decode(ConstBytes);
template std::optional<Report> decode(ConstBytes);

}  // namespace launcher
}  // namespace hvd

bool hvd::launcher::wants_another_run(int wait_status) {
  return WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == again_code;
}
