#include "launcher/options/manual.hpp"

#include <algorithm>
#include <string_view>

#include "base/settings/config.hpp"
#include "launcher/options/flags.hpp"
#include "native/posix/plugins/plugin.hpp"

namespace hvd::launcher {
namespace {

// Escapes text for roff: dashes can be copied, backslashes are literal, and no line looks like a request of roff.
std::string roff(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '\\') result += "\\e";
    else if (c == '-') result += "\\-";
    else result += c;
  }
  if (result.starts_with('.') || result.starts_with('\'')) result.insert(0, "\\&");
  return result;
}

// Breaks the text into lines of at most 80 bytes, which is mandoc's limit. Requests and titles are not broken.
std::string in_short_lines(std::string_view text) {
  std::string result;
  bool is_title = false;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    bool is_whole = is_title || line.starts_with('.');
    is_title = line == ".TP" || line == ".TQ";
    while (!is_whole && line.size() > 72) {
      std::size_t blank = line.rfind(' ', 72);
      if (blank == std::string_view::npos || blank + 1 == line.size()) break;
      result += std::string(line.substr(0, blank)) + "\n";
      line.remove_prefix(blank + 1);
      if (line.starts_with('.') || line.starts_with('\'')) result += "\\&";
    }
    result += std::string(line) + "\n";
  }
  return result;
}

std::string flag_entry(const FlagRow& row) {
  // A title must be one line. If it would be too long, it is shortened.
  std::string text;
  std::string value = placeholder_of(row).empty() ? "" : " \\fI" + placeholder_of(row) + "\\fR";
  if (row.kind == Kind::may_have_value) value.erase(0, 1);
  for (const char* list : {row.spellings, row.negations}) {
    std::string title;
    for (const std::string& word : words_of(list)) title += (title.empty() ? "\\fB" : ", \\fB") + roff(word) + "\\fR";
    if (!title.empty()) text += (text.empty() ? ".TP\n" : ".TQ\n") + title + value + "\n";
  }
  text += roff(row.help) + ".\n";
  if (row.variable != nullptr) text += std::string("Sets \\fB") + row.variable + "\\fR.\n";
  return text;
}

std::string variable_entry(const KnobRow& knob) {
  std::string text = ".TP\n\\fB" + std::string(knob.name) + "\\fR";
  if (*knob.default_value != '\0') text += "=" + roff(knob.default_value);
  return text + "\n" + roff(knob.meaning) + ".\n";
}

constexpr const char* description = R"(.SH SYNOPSIS
\fBhorovodrun\fR [\fB\-np\fR \fIN\fR] [\fIflags\fR] \fIcommand\fR [\fIarguments\fR]
.SH DESCRIPTION
Starts N copies of a program as the ranks of one job, on this machine, on other hosts, or inside a scheduler's job
by the scheduler's own launcher.
The job ends when all ranks have ended.
If one fails, the others are ended, and the output closes with the block FIRST FAILURE, which names the cause.
.PP
Flags end where the command begins, or at \fB\-\-\fR.
They may be shortened as long as they stay unique, and a value may follow a blank or an equals sign.
.SH OPTIONS
)";

constexpr const char* rest = R"(.SH FILES
.TP
\fIprefix\fR/etc/horovod/site.yaml
What the site says about flags and variables, and which of them it has locked.
.TP
~/.config/horovod/config.yaml
What the user says.
.PP
Flags win over the file of \fB\-\-config\-file\fR, that over the environment, that over the user's file
and that over the site's.
\fBhorovodrun \-\-show\-config\fR tells each value and where it comes from.
.SH EXIT STATUS
.TP
0
All ranks ended with 0.
.TP
2
Wrong usage.
.TP
126, 127
The command cannot be executed, or does not exist.
.TP
128 + \fIN\fR
A rank was ended by signal \fIN\fR.
.PP
Else the code of the rank that failed first.
.SH SIGNALS
SIGINT, SIGTERM and SIGHUP end the job, a second one at once.
SIGUSR1, SIGUSR2, SIGQUIT, SIGTSTP and SIGCONT go to the ranks.
.SH EXAMPLES
.nf
horovodrun \-np 4 python train.py
horovodrun \-np 8 \-H node1:4,node2:4 python train.py
horovodrun \-\-explain \-np 8
.fi
.SH SEE ALSO
.BR srun (1),
.BR mpiexec (1),
.BR ssh (1)
)";

}  // namespace

std::string manual_page() {
  std::string text = std::string(".\\\" Written by horovodrun --manual.\n.TH HOROVODRUN 1 ") + HVD_DATE +
                     " \"Horovod " + posix::plugin_stamp(0).version +
                     "\"\n.SH NAME\nhorovodrun \\- start a program as the ranks of one "
                     "job\n" +
                     description;
  for (const FlagRow& row : flag_rows()) text += flag_entry(row);
  text += ".SH ENVIRONMENT\n";
  for (const KnobRow& knob : knobs()) {
    if (knob.is_for_users()) text += variable_entry(knob);
  }
  return in_short_lines(text + rest);
}

}  // namespace hvd::launcher
