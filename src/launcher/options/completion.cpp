// Makes the scripts by which bash and zsh complete the flags of horovodrun. They are made from the table of flags.
#include <string_view>

#include "launcher/options/flags.hpp"
#include "launcher/options/manual.hpp"

namespace hvd::launcher {
namespace {

std::string all_spellings(const FlagRow& row, const char* separator) {
  std::string text;
  for (const char* list : {row.spellings, row.negations})
    for (const std::string& word : words_of(list)) text += (text.empty() ? "" : separator) + word;
  return text;
}

void add(std::string& list, const std::string& words, const char* separator) {
  if (!words.empty()) list += (list.empty() ? "" : separator) + words;
}

// The words after the flags are a command of their own. bash-completion's function completes them, if it is loaded.
constexpr const char* bash_start = R"(# Completes horovodrun in bash; written by horovodrun --completion bash.
_horovodrun_command() {
  if declare -F _command_offset >/dev/null; then
    _command_offset "$1"
  elif ((COMP_CWORD == $1)); then
    mapfile -t COMPREPLY < <(compgen -c -- "$word")
  else
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}

_horovodrun() {
  local at=1 flag='' word=${COMP_WORDS[COMP_CWORD]} kind='' words=''
  COMPREPLY=()
  while ((at < COMP_CWORD)); do
    flag=''
    case ${COMP_WORDS[at]} in
      --) _horovodrun_command $((at + 1)); return ;;
)";

constexpr const char* bash_end = R"(  esac
  [[ $word == = ]] && word=''
  case $kind in
    file) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
    folder) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
    host) mapfile -t COMPREPLY < <(compgen -A hostname -- "$word") ;;
    words) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word") ;;
    command) _horovodrun_command "$at" ;;
  esac
}
complete -F _horovodrun horovodrun
)";

std::string bash_completion() {
  std::string flags, with_value, with_two, answers;
  for (const FlagRow& row : flag_rows()) {
    add(flags, all_spellings(row, " "), " ");
    if (row.kind == Kind::pair) add(with_two, all_spellings(row, "|"), "|");
    else if (takes_value(row.kind)) add(with_value, all_spellings(row, "|"), "|");
    std::string_view values = row.values;
    if (values.empty()) continue;
    answers += "    " + all_spellings(row, "|") + ") kind=";
    if (values.starts_with('<')) answers += "'" + std::string(values.substr(1, values.size() - 2)) + "' ;;\n";
    else answers += "'words' words=\"" + std::string(values) + "\" ;;\n";
  }
  // bash splits "--flag=value" into three words
  return bash_start + ("      " + with_two) +
         ") ((at += 3)) ;;\n"
         "      " +
         with_value +
         ")\n"
         "        flag=${COMP_WORDS[at]}\n"
         "        ((at += 1))\n"
         "        [[ ${COMP_WORDS[at]} == = ]] && ((at < COMP_CWORD)) && ((at += 1))\n"
         "        ((at >= COMP_CWORD)) && break\n"
         "        flag=''\n"
         "        ((at += 1)) ;;\n"
         "      =) ((at += 2)) ;;\n"  // the '=' after a flag whose value may be left out
         "      -*) ((at += 1)) ;;\n"
         "      *) _horovodrun_command \"$at\"; return ;;\n"
         "    esac\n"
         "  done\n"
         "  case $flag in\n" +
         answers +
         "    \"\")\n"
         "      kind='command'\n"
         "      [[ $word == -* ]] && kind='words' words=\"" +
         flags + "\" ;;\n" + bash_end;
}

// Escapes text inside single quotes and brackets, in an argument of zsh's _arguments.
std::string zsh_text(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '\'') result += "'\\''";
    else if (c == '[' || c == ']' || c == ':' || c == '\\') result += std::string("\\") + c;
    else result += c;
  }
  return result;
}

std::string zsh_value(const FlagRow& row) {
  if (row.kind == Kind::may_have_value) return "::FILE:_files";
  if (!takes_value(row.kind)) return {};
  std::string_view values = row.values;
  std::string action;
  if (values == "<file>") action = "_files";
  else if (values == "<folder>") action = "_files -/";
  else if (values == "<host>") action = "_hosts";
  else if (!values.empty()) action = "(" + std::string(values) + ")";
  std::string one = ":" + placeholder_of(row) + ":" + action;
  return row.kind == Kind::pair ? ":MIN::MAX:" : one;
}

std::string zsh_completion() {
  std::string text = "#compdef horovodrun\n# Written by horovodrun --completion zsh.\n\n_arguments -S \\\n";
  for (const FlagRow& row : flag_rows()) {
    std::string rivals = all_spellings(row, " ");
    for (const char* list : {row.spellings, row.negations})
      for (const std::string& word : words_of(list)) {
        text += "  '" + (row.kind == Kind::list ? "*" : "(" + rivals + ")") + word;
        if (row.kind == Kind::may_have_value) text += "=-";
        if (takes_value(row.kind) && row.kind != Kind::pair && word.starts_with("--")) text += "=";
        text += "[" + zsh_text(row.help) + "]" + zsh_value(row) + "' \\\n";
      }
  }
  return text + "  '(-)1: :_command_names -e' \\\n  '*:: :_normal'\n";
}

}  // namespace

Result<std::string> completion_for(const std::string& shell) {
  if (shell == "bash") return bash_completion();
  if (shell == "zsh") return zsh_completion();
  return Error(ErrorCode::invalid_argument, "--completion: expected bash or zsh, found '" + shell + "'");
}

}  // namespace hvd::launcher
