# dlock alone: process 1 of a container, or a file to copy into another image.
# goreleaser puts the binary of each platform beside it.
FROM --platform=$BUILDPLATFORM alpine:3 AS certificates

FROM scratch
ARG TARGETPLATFORM
COPY --from=certificates /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY $TARGETPLATFORM/dlock /usr/bin/dlock
ENTRYPOINT ["/usr/bin/dlock"]
