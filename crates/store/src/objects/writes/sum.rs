//! Checksums of what is sent, of the kind that the service computes: CRC-64/NVME for S3 and Azure, CRC-32C for Google.
//! Those of parts are combined into that of the object.

use crc_fast::CrcAlgorithm;
use model::objects::Service;

use super::seen::ServerSums;

/// The checksum and the length of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContentSum {
    service: Service,
    crc: u64,
    pub(super) bytes: u64,
}

fn algorithm(service: Service) -> CrcAlgorithm {
    match service {
        Service::S3 | Service::Azure => CrcAlgorithm::Crc64Nvme,
        Service::Gcs => CrcAlgorithm::Crc32Iscsi,
    }
}

impl ContentSum {
    pub(super) fn of(service: Service, bytes: &[u8]) -> ContentSum {
        let crc = crc_fast::checksum(algorithm(service), bytes);
        ContentSum { service, crc, bytes: bytes.len() as u64 }
    }

    /// The checksum of these bytes followed by others.
    pub(super) fn then(&self, next: &ContentSum) -> ContentSum {
        let crc = crc_fast::checksum_combine(algorithm(self.service), self.crc, next.crc, next.bytes);
        ContentSum { service: self.service, crc, bytes: self.bytes + next.bytes }
    }

    /// Whether the server computed the same for these bytes; `None` if it did not tell.
    pub(super) fn agrees(&self, server: &ServerSums) -> Option<bool> {
        let computed = match self.service {
            Service::S3 | Service::Azure => server.crc64,
            Service::Gcs => server.crc32c.map(u64::from),
        };
        computed.map(|crc| crc == self.crc)
    }

    /// Whether the server computed the same for the object that it put together; `None` if it did not tell.
    pub(super) fn agrees_as_whole(&self, server: &ServerSums) -> Option<bool> {
        server.whole_crc64.filter(|_| self.service == Service::S3).map(|crc| crc == self.crc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_services_and_can_be_combined() {
        let text = b"123456789";
        for (service, check) in [
            (Service::S3, 0xae8b_1486_0a79_9888),
            (Service::Azure, 0xae8b_1486_0a79_9888),
            (Service::Gcs, 0xe306_9283),
        ] {
            let whole = ContentSum::of(service, text);
            assert_eq!(whole.crc, check);
            for at in 0..=text.len() {
                let (first, second) = text.split_at(at);
                assert_eq!(ContentSum::of(service, first).then(&ContentSum::of(service, second)), whole);
            }
        }
    }
}
