"""Stand-ins, in assembler, for functions of CUDA's libraries that the double does not define. They refuse by name.

stand_ins.py runtime TORCH OBJECT REAL  prints those of the runtime library: what the libraries in TORCH/lib import, or
                                        the file REAL exports (if it is there), and OBJECT does not define
stand_ins.py libraries TORCH OUT        makes, in OUT, the libraries that TORCH/lib is linked with and that are not
                                        there (cuBLAS, cuDNN, ...: torch was installed alone)
"""
import pathlib
import re
import subprocess
import sys

END = '.section .note.GNU-stack,"",@progbits\n'


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def symbols(path, *flags):
    return {line.split()[-1] for line in output_of("nm", *flags, str(path)).splitlines() if line.strip()}


def stand_in(name, refuse):
    if re.search("ErrorString$|LastError$", name):  # these return texts
        return (f'.section .rodata\n1: .asciz "a stand-in"\n.text\n.globl {name}\n.type {name}, @function\n{name}:\n'
                "  leaq 1b(%rip), %rax\n  ret\n")
    return (f'.section .rodata\n1: .asciz "{name}"\n.text\n.globl {name}\n.type {name}, @function\n{name}:\n'
            f"  leaq 1b(%rip), %rdi\n  jmp {refuse}\n")


def runtime(torch, mine, real):
    wanted = set().union(*(symbols(each, "-D", "--undefined-only") for each in torch.glob("lib/*.so")))
    if real.exists():
        wanted |= symbols(real, "-D", "--defined-only")
    names = {name.split("@")[0] for name in wanted} - symbols(mine, "--defined-only")
    names = sorted(name for name in names if re.match("_*cuda[A-Z]", name))
    print("".join(stand_in(name, "cuda_double_refuse@PLT") for name in names) + END)


# Prints its argument, a name, and returns 1.
REFUSE = """.section .rodata
format: .asciz "the double of CUDA has no %s\\n"
.text
refuse:
  subq $8, %rsp
  movq %rdi, %rsi
  leaq format(%rip), %rdi
  xorl %eax, %eax
  call printf@PLT
  movl $1, %eax
  addq $8, %rsp
  ret
"""


def libraries(torch, out):
    present = [*torch.glob("lib/*.so*"), *out.glob("*.so*")]
    wanted, sonames, versions = set(), set(), {}
    for library in torch.glob("lib/*.so"):
        for part in output_of("readelf", "-V", "-W", str(library)).split("File: ")[1:]:
            versions.setdefault(part.split()[0], set()).update(re.findall(r"Name: (\S+)", part))
        wanted |= {tuple((name + "@").split("@")[:2]) for name in symbols(library, "-D", "--undefined-only")}
        needed = output_of("readelf", "-d", str(library))
        sonames |= set(re.findall(r"NEEDED.*\[(lib(?:cu|nccl|nv)[^]]*)\]", needed))
    defined = {name.split("@")[0] for each in present for name in symbols(each, "-D", "--defined-only")}
    missing = sorted(sonames - {each.name for each in present})
    for soname in missing:
        stem = re.match(r"lib(.*?)\.so", soname)[1].lower()
        its_versions = versions.get(soname, set())
        names = sorted({name for name, version in wanted if name not in defined and
                        (version in its_versions or not version and name.lower().startswith(stem))})
        if soname == missing[0]:  # what the double of NCCL does not have
            names += sorted({name for name, _ in wanted if name.startswith("nccl") and name not in defined})
        source, exports = out / "stand_in.s", out / "stand_in.map"
        source.write_text(REFUSE + "".join(stand_in(name, "refuse") for name in names) + END)
        exports.write_text("".join(f"{version} {{ global: *; }};\n" for version in its_versions or [soname]))
        subprocess.run(["gcc", "-shared", source, "-o", out / soname,
                        f"-Wl,-soname,{soname},--version-script={exports}"], check=True)


if __name__ == "__main__":
    {"runtime": runtime, "libraries": libraries}[sys.argv[1]](*map(pathlib.Path, sys.argv[2:]))
