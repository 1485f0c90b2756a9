# Written by containers/generate: change that, then run it.
# NVIDIA GPUs, POWER9 (Summit, Lassen): PyTorch, CUDA and NCCL of Open-CE;
# the image has an MPI of its own (MPICH); the host's launcher starts the ranks.
# Build it from the top of the tree: podman build -f containers/cuda-ppc64le-hybrid.Dockerfile -t horovod .

FROM docker.io/rockylinux/rockylinux:9 AS build
COPY CMakeLists.txt /src/horovod/CMakeLists.txt
COPY LICENSE /src/horovod/LICENSE
COPY jobscripts /src/horovod/jobscripts
COPY modules /src/horovod/modules
COPY schedulers /src/horovod/schedulers
COPY src /src/horovod/src
RUN dnf install --assumeyes dnf-plugins-core epel-release \
 && dnf config-manager --set-enabled crb \
 && dnf install --assumeyes --setopt=install_weak_deps=False gcc-toolset-13-gcc-c++ cmake ninja-build pkgconf-pkg-config highway-devel pmix-devel hwloc-devel mpich-devel openmpi-devel python3.11-devel clang \
 && cmake -S /src/horovod -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON -DHVD_BUILD_PYTHON=ON -DHVD_BUILD_TESTS=OFF -DHVD_BUILD_EXAMPLES=OFF -DHVD_WARNINGS_ARE_ERRORS=OFF -DHVD_CUDA_KERNELS=ON -DCMAKE_CXX_COMPILER=/opt/rh/gcc-toolset-13/root/usr/bin/g++ -DCMAKE_C_COMPILER=/opt/rh/gcc-toolset-13/root/usr/bin/gcc -DHVD_MPI_MPICH_INCLUDE=/usr/include/mpich-ppc64le -DHVD_MPI_OPENMPI_INCLUDE=/usr/include/openmpi-ppc64le -DCMAKE_INSTALL_LIBDIR=lib \
 && cmake --build /build \
 && cmake --install /build --prefix /opt/horovod --strip

FROM docker.io/rockylinux/rockylinux:9 AS final
COPY --from=build /opt/horovod /opt/horovod
COPY containers/two_ranks.py /opt/horovod/two_ranks.py
RUN dnf install --assumeyes dnf-plugins-core epel-release \
 && dnf config-manager --set-enabled crb \
 && dnf install --assumeyes --setopt=install_weak_deps=False bzip2 hwloc-libs libevent openssh-clients openssh-server pmix mpich \
 && curl -fsSL https://micro.mamba.pm/api/micromamba/linux-ppc64le/latest | tar -xj -C / bin/micromamba \
 && micromamba create --yes --prefix /opt/python --channel https://ftp.osuosl.org/pub/open-ce/current --channel conda-forge python=3.11 pytorch cudatoolkit nccl numpy cloudpickle \
 && micromamba clean --all --yes \
 && echo /opt/horovod/lib/horovod/python >$(/opt/python/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/horovod.pth \
 && mkdir -p /ch /run/munge /run/palsd /var/spool/slurm /var/spool/slurmd /lustre /gpfs /scratch /work \
 && printf '%s\n' PATH=/opt/python/bin:/opt/horovod/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LD_LIBRARY_PATH=/usr/lib64/mpich/lib CUDA_DEVICE_ORDER=PCI_BUS_ID >/ch/environment \
 && rm -f /etc/ssh/ssh_host_* \
 && dnf clean all
ENV PATH="/opt/python/bin:/opt/horovod/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
    LD_LIBRARY_PATH="/usr/lib64/mpich/lib" \
    CUDA_DEVICE_ORDER="PCI_BUS_ID"
LABEL org.opencontainers.image.title="horovod-cuda-ppc64le-hybrid" \
      org.opencontainers.image.version="1.0.0.dev0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.description="Horovod for HPC clusters, NVIDIA GPUs, POWER9 (Summit, Lassen): PyTorch, CUDA and NCCL of Open-CE" \
      horovod.mpi="hybrid"
RUN horovodrun --check-build \
 && python -c 'import torch; assert torch.version.cuda and torch.cuda.nccl.version()' \
 && horovodrun -np 2 --oversubscribe python /opt/horovod/two_ranks.py
CMD ["bash"]
