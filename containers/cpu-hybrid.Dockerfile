# Written by containers/generate: change that, then run it.
# for processors alone, any architecture of Debian;
# the image has an MPI of its own (MPICH); the host's launcher starts the ranks.
# Build it from the top of the tree: podman build -f containers/cpu-hybrid.Dockerfile -t horovod .

FROM docker.io/library/debian:12 AS build
ARG DEBIAN_FRONTEND=noninteractive
COPY CMakeLists.txt /src/horovod/CMakeLists.txt
COPY LICENSE /src/horovod/LICENSE
COPY jobscripts /src/horovod/jobscripts
COPY modules /src/horovod/modules
COPY schedulers /src/horovod/schedulers
COPY src /src/horovod/src
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ cmake ninja-build pkg-config libhwy-dev libpmix-dev libhwloc-dev libmpich-dev libopenmpi-dev python3-dev \
 && cmake -S /src/horovod -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON -DHVD_BUILD_PYTHON=ON -DHVD_BUILD_TESTS=OFF -DHVD_BUILD_EXAMPLES=OFF -DHVD_WARNINGS_ARE_ERRORS=OFF \
 && cmake --build /build \
 && cmake --install /build --prefix /opt/horovod --strip

FROM docker.io/library/debian:12 AS final
ARG DEBIAN_FRONTEND=noninteractive
COPY --from=build /opt/horovod /opt/horovod
COPY containers/two_ranks.py /opt/horovod/two_ranks.py
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates openssh-client openssh-server python3 python3-venv libhwloc15 libpmix2 libevent-core-2.1-7 mpich \
 && python3 -m venv /opt/python \
 && /opt/python/bin/pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu torch==2.13.0 numpy cloudpickle \
 && echo /opt/horovod/lib/horovod/python >$(/opt/python/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/horovod.pth \
 && mkdir -p /ch /run/munge /run/palsd /var/spool/slurm /var/spool/slurmd /lustre /gpfs /scratch /work \
 && printf '%s\n' PATH=/opt/python/bin:/opt/horovod/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin >/ch/environment \
 && rm -f /etc/ssh/ssh_host_* \
 && rm -rf /var/lib/apt/lists/*
ENV PATH="/opt/python/bin:/opt/horovod/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LABEL org.opencontainers.image.title="horovod-cpu-hybrid" \
      org.opencontainers.image.version="1.0.0.dev0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.description="Horovod for HPC clusters, for processors alone, any architecture of Debian" \
      horovod.mpi="hybrid"
RUN horovodrun --check-build \
 && horovodrun -np 2 --oversubscribe python /opt/horovod/two_ranks.py
CMD ["bash"]
