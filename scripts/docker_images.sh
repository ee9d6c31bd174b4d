# The images of scripts/docker_engine, which sources this. They are built from Debian's packages alone: no registry.
# shellcheck shell=bash

: "${home:?is the folder of scripts/docker_engine}"
suite=bookworm
repository=ghcr.io/huggingface/text-generation-inference
base_image=tgi-deploy-test/base
machine_image=tgi-deploy-test/machine
# Release and the variable that moves its cache to /data.
engine_releases=("3.3.7 HF_HOME" "2.2.0 HUGGINGFACE_HUB_CACHE")
base_packages=python3,ca-certificates

make_images() {
  make_base
  fetch_packages
  local release
  for release in "${engine_releases[@]}"; do
    make_engine_image "${release% *}" "${release#* }"
  done
  build "$(image_of docker/proxy)" tests/images/proxy/Dockerfile
  docker tag "$(image_of docker/proxy)" "$(image_of aws/tls)"
  build "$machine_image" tests/images/machine/Dockerfile
  make_machine_store
}

# The mirror that apt uses here: the one configured for the suite's main archive.
mirror() {
  # shellcheck disable=SC2016 # apt fills these in
  apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT) $(CREATED_BY)' 2>/dev/null |
    awk -v suite="$suite" '$2 == suite && $3 == "main" && $4 == "Packages" { print $1; exit }'
}

make_base() {
  local recipe tree archive
  recipe=$(printf '%s\n' "$suite" "$base_packages" | sha256sum | cut -c1-12)
  base_tag=$base_image:$recipe
  if docker image inspect "$base_tag" >/dev/null 2>&1; then return 0; fi
  printf 'building %s\n' "$base_tag"
  tree=$(mktemp -d "$home/base.XXXXXX")
  archive=$(mirror)
  debootstrap --variant=minbase --include="$base_packages" "$suite" "$tree" ${archive:+"$archive"} >"$home/base.log" 2>&1 || {
    tail -n 20 "$home/base.log"
    return 1
  }
  tar -C "$tree" --exclude='./var/cache/apt/archives/*.deb' --exclude='./var/lib/apt/lists/*' \
    --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' -c . | docker import - "$base_tag" >/dev/null
  rm -rf "$tree"
}

# build TAG DOCKERFILE [OPTIONS...]: unchanged layers are reused.
build() {
  local tag=$1 file=$2
  shift 2
  printf 'building %s\n' "$tag"
  context | DOCKER_BUILDKIT=0 docker build --network host --build-arg "BASE=$base_tag" \
    --build-arg http_proxy --build-arg https_proxy --tag "$tag" --file "$file" "$@" - >"$home/build.log" 2>&1 || {
    tail -n 30 "$home/build.log"
    return 1
  }
}

# The files of the repository in the images, and the packages that the stub server imports, for the suite's Python.
# Modification times are left out, so that unchanged layers are reused.
context() {
  tar -c --sort=name --mtime=@0 --owner=0 --group=0 --exclude=__pycache__ tgi_deploy profiles tests/images \
    -C "$home" packages
}

fetch_packages() {
  "${TGI_DEPLOY_VENV:-.venv}/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile \
    --upgrade --target "$home/packages" --python-version 3.11 --only-binary=:all: \
    --constraint scripts/constraints.txt msgspec PyYAML
}

make_engine_image() {
  build "$repository:$1" tests/images/engine/Dockerfile --build-arg "VERSION=$1" --build-arg "CACHE_VARIABLE=$2"
}

# The image that a file of the profiles names.
image_of() {
  sed -n 's/^ *"image": "\(.*\)",\{0,1\}$/\1/p' "profiles/$1.json"
}

# /var/lib/docker of a machine that holds the engine's images and the proxy's: each machine of a test gets a copy.
make_machine_store() {
  local store=$home/machine-store new=$home/machine-store.new tags=("${engine_releases[@]/#/$repository:}") wanted
  tags=("${tags[@]%% *}" "$(image_of aws/tls)")
  wanted=$(docker image inspect --format '{{.Id}}' "${tags[@]}")
  if [ "$(cat "$store.holds" 2>/dev/null)" = "$wanted" ]; then return 0; fi
  printf 'building the store of a machine\n'
  rm -rf "$new" "$store.holds"
  dockerd --host "unix://$new.sock" --data-root "$new" --exec-root "$new.exec" --pidfile "$new.pid" \
    --bridge none --iptables=false --ip6tables=false >"$store.log" 2>&1 </dev/null 9>&- &
  local pid=$! loaded=''
  if DOCKER_HOST=unix://$new.sock await; then
    docker save "${tags[@]}" | docker --host "unix://$new.sock" load --quiet && loaded=yes
  fi
  kill "$pid" 2>/dev/null || true
  wait "$pid" || true
  if [ -z "$loaded" ]; then return 1; fi
  rm -rf "$store" "$new.exec"
  mv "$new" "$store"
  printf '%s\n' "$wanted" >"$store.holds"
}
