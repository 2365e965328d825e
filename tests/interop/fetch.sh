#!/bin/sh
# Fetches and builds what the interoperability tests need, under build/ of the repository; what is there is kept.
#   fetch.sh [all|jars|driver|go|node]...     default: all
#
# jars    Apache Kafka's jars through Maven          build/kafka-3.9.1/libs, build/kafka-4.3.1/libs
# driver  tests/interop/java/src, compiled once      build/interop/java
# go      the franz-go program, and group members     build/interop/franz, build/interop/go-member
# node    kafkajs and its codecs                     build/interop/node
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$here/../.." && pwd)/build
mkdir -p "$build/interop"

say() { echo "fetch: $*"; }

newer() { # file, folder: is some source in the folder newer than the file, or the file missing?
    [ ! -e "$1" ] || [ -n "$(find "$2" -type f -newer "$1" -print -quit)" ]
}

fetch_jars() {
    for version in 3.9.1 4.3.1; do
        libs=$build/kafka-$version/libs
        newer "$libs/.complete" "$here/java/kafka-$version" || continue
        say "Apache Kafka $version's jars, through Maven, into $libs"
        mkdir -p "$libs"
        mvn -q -B -f "$here/java/kafka-$version/pom.xml" dependency:copy-dependencies -DoutputDirectory="$libs"
        touch "$libs/.complete"
    done
}

# The driver uses only what both releases share, so one compilation against the older one serves both.
build_driver() {
    fetch_jars
    classes=$build/interop/java
    newer "$classes/.complete" "$here/java/src" || return 0
    say "compiling the Java driver into $classes"
    mkdir -p "$classes"
    javac -nowarn -encoding UTF-8 --release 17 -cp "$build/kafka-3.9.1/libs/*" -d "$classes" "$here"/java/src/*.java
    touch "$classes/.complete"
}

build_go() {
    newer "$build/interop/franz" "$here/go" || return 0
    say "building the Go programs into $build/interop"
    (cd "$here/go" && export CGO_ENABLED=0 GOFLAGS=-mod=readonly &&
        go build -o "$build/interop/go-member" ./member && go build -o "$build/interop/franz" .)
    touch "$build/interop/franz"
}

install_node() {
    modules=$build/interop/node
    newer "$modules/.complete" "$here/node" || return 0
    say "installing kafkajs into $modules"
    mkdir -p "$modules"
    cp "$here"/node/package.json "$here"/node/package-lock.json "$here"/node/*.js "$modules/"
    (cd "$modules" && npm ci --silent --no-audit --no-fund --ignore-scripts)
    touch "$modules/.complete"
}

[ $# -gt 0 ] || set -- all
for part in "$@"; do
    case $part in
    all) fetch_jars; build_driver; build_go; install_node ;;
    jars) fetch_jars ;;
    driver) build_driver ;;
    go) build_go ;;
    node) install_node ;;
    *) echo "usage: $0 [all|jars|driver|go|node]..." >&2; exit 2 ;;
    esac
done
